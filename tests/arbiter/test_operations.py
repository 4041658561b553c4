"""The operations over HTTP, each answer held against openapi.yaml."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from jupyter_vgpu.arbiter.client import ArbiterUnavailable
from jupyter_vgpu.native import protocol
from jupyter_vgpu.pool.model import InvalidValue
from tests.arbiter import contract
from tests.arbiter.conftest import GIB
from tests.waiting import until


@pytest.fixture
def ask(arbiter):
    return lambda *arguments, **options: contract.ask(arbiter.socket, *arguments, **options)


@pytest.fixture
def created(ask):
    status, created = ask("POST", "/leases", {"name": "a.ipynb", "kernel_id": "k1", "memory": "4GiB"})
    assert status == 201
    return created


def test_without_a_policy_a_lease_is_the_whole_of_every_device(arbiter, ask):
    status, created = ask("POST", "/leases", {"name": "alone"})
    lease = created["lease"]
    assert status == 201
    assert [(p["device"], p["memory"], p["memory_guarantee"], p["compute"], p["compute_cap"]) for p in lease["parts"]] == [
        (uuid, 16 * GIB, 0, 1.0, None) for uuid in arbiter.uuids
    ]
    assert (lease["state"], lease["message"], lease["priority"]) == ("starting", None, "interactive")
    assert len(created["token"]) == protocol.TOKEN_LENGTH


def test_the_pool_shows_devices_leases_and_policy(arbiter, ask, created):
    arbiter.set_processes({arbiter.uuids[0]: {1: GIB}})
    until(lambda: ask("GET", "/pool")[1]["devices"][0]["memory_used"] == GIB, within=10)
    _, pool = ask("GET", "/pool")
    device = pool["devices"][0]
    assert (device["uuid"], device["memory_total"], device["memory_pool"]) == (arbiter.uuids[0], 16 * GIB, 16 * GIB)
    assert (device["memory_unmanaged"], [process["pid"] for process in device["unmanaged"]]) == (GIB, [1])
    assert (device["utilization"], device["temperature"], device["power"]) == (0.25, 40.0, None)
    assert [lease["id"] for lease in pool["leases"]] == [created["lease"]["id"]]
    assert pool["arbiter"]["pid"] == arbiter.process.pid
    assert pool["policy"] == {"source": None, "revision": 0, "error": None, "policy": pool["policy"]["policy"]}


def test_leases_are_found_by_kernel(ask, created):
    assert [lease["id"] for lease in ask("GET", "/leases?kernel_id=k1")[1]] == [created["lease"]["id"]]
    assert ask("GET", "/leases?kernel_id=other")[1] == []


def test_a_wrong_wish_gives_a_lease_with_the_reason(ask):
    memory = [{"memory": "lots"}, {"memory": "99TiB"}, {"memory": [1]}]
    for wish in (*memory, {"class": "nope"}, {"share": 2}, {"compute": 0}, {"priority": "mine"}):
        status, created = ask("POST", "/leases", {"name": "n", **wish})
        assert status == 201
        assert next(iter(wish)) in created["lease"]["message"]


def test_a_strict_wrong_wish_is_refused(ask):
    status, error = ask("POST", "/leases", {"name": "n", "memory": "lots", "strict": True})
    assert status == 400
    assert (error["error"]["field"], error["error"]["value"]) == ("memory", "lots")
    assert ask("GET", "/leases")[1] == []


BAD_CHANGES = {
    "unknown class": ({"class": "nope"}, 400, "class"),
    "malformed size": ({"memory": "8 Gibibits"}, 400, "memory"),
    "negative size": ({"memory": -1}, 400, "memory"),
    "size as a list": ({"memory": ["8GiB"]}, 400, "memory"),
    "share of 0": ({"share": 0}, 400, "share"),
    "share of 2": ({"share": 2}, 400, "share"),
    "compute of nan": ({"compute": float("nan")}, 400, "compute"),
    "cap of 0": ({"compute_cap": 0}, 400, "compute_cap"),
    "quota above the device": ({"memory": "17GiB"}, 400, "memory"),
    "unknown priority": ({"priority": "urgent"}, 400, "priority"),
    "unknown device": ({"device": "GPU-none"}, 400, "device"),
    "unknown field": ({"memroy": "8GiB"}, 400, "memroy"),
    "nothing": ({}, 400, None),
    "null": ({"memory": None}, 400, "memory"),
    "not an object": ([1], 400, None),
    "one wrong of two": ({"compute": 0.5, "memory": "x"}, 400, "memory"),
}


@pytest.mark.parametrize(("change", "status", "field"), BAD_CHANGES.values(), ids=BAD_CHANGES)
def test_a_wrong_change_names_the_field_and_changes_nothing(ask, created, change, status, field):
    lease_id = created["lease"]["id"]
    before = ask("GET", f"/leases/{lease_id}")[1]
    answered, error = ask("PATCH", f"/leases/{lease_id}", change)
    assert answered == status
    assert error["error"]["field"] == field
    assert error["error"]["message"] and (error["error"]["allowed"] or field is None)
    assert ask("GET", f"/leases/{lease_id}")[1] == before


def test_a_body_that_is_not_json_is_refused(ask, created):
    for raw in (b"", b"{", b"\xff\xfe", b"memory=8GiB"):
        assert ask("PATCH", f"/leases/{created['lease']['id']}", raw=raw)[0] == 400
    assert ask("POST", "/leases", raw=b"nope")[0] == 400


@pytest.mark.parametrize(
    "body", [{}, {"name": ""}, {"name": 5}, {"name": "n", "kernel_id": 5}, {"name": "n", "extra": 1}, {"name": "n", "strict": "yes"}]
)
def test_a_lease_needs_a_name_and_known_fields(ask, body):
    status, error = ask("POST", "/leases", body)
    assert status == 400 and error["error"]["field"]


def test_a_good_change_is_whole_and_seen(ask, created):
    lease_id = created["lease"]["id"]
    status, lease = ask("PATCH", f"/leases/{lease_id}", {"memory": "6GiB", "compute": 0.5, "compute_cap": 0.5, "priority": "batch"})
    assert status == 200
    assert [(p["memory"], p["compute"], p["compute_cap"]) for p in lease["parts"]] == [(6 * GIB, 0.5, 0.5)] * 2
    assert lease["priority"] == "batch"
    assert ask("PATCH", f"/leases/{lease_id}", {"compute_cap": None})[1]["parts"][0]["compute_cap"] is None
    assert ask("GET", f"/leases/{lease_id}")[1]["parts"][0]["memory"] == 6 * GIB


def test_a_limit_below_use_is_a_conflict_with_the_figure(arbiter, ask, created):
    shim = arbiter.shim(created)
    shim.attach()
    shim.allocate(3 * GIB)
    status, error = ask("PATCH", f"/leases/{created['lease']['id']}", {"memory": "2GiB"})
    assert status == 409
    assert "3 GiB" in error["error"]["message"]
    assert shim.page.device[0].memory_limit == 4 * GIB
    shim.close()


def test_devices_are_settled_once_attached(arbiter, ask, created):
    lease_id = created["lease"]["id"]
    assert ask("PATCH", f"/leases/{lease_id}", {"device": arbiter.uuids[1]})[0] == 200
    shim = arbiter.shim(created)
    shim.attach()
    assert shim.page.device_count == 1
    assert ask("PATCH", f"/leases/{lease_id}", {"device": arbiter.uuids[0]})[0] == 409
    shim.close()


def test_a_tenant_changes_itself_and_nobody_else(ask, created):
    other = ask("POST", "/leases", {"name": "other"})[1]
    token, foreign = created["token"], other["lease"]["id"]
    assert ask("GET", "/leases/self", token=token)[1]["id"] == created["lease"]["id"]
    assert ask("PATCH", "/leases/self", {"memory": "2GiB"}, token=token)[0] == 200
    before = ask("GET", f"/leases/{foreign}")[1]
    for method, path, body in (
        ("PATCH", f"/leases/{foreign}", {"memory": "1GiB"}),
        ("DELETE", f"/leases/{foreign}", None),
        ("POST", f"/leases/{foreign}/processes", {"pid": os.getpid()}),
        ("PUT", f"/leases/{foreign}/activity", {"open_cells": 1}),
        ("POST", f"/leases/{foreign}/interrupt", None),
    ):
        status, error = ask(method, path, body, token=token)
        assert status == 403, (method, path)
        assert error["error"]["field"] == "lease_id" and foreign in error["error"]["message"]
    assert ask("GET", f"/leases/{foreign}")[1] == before
    assert ask("POST", "/leases", {"name": "more"}, token=token)[0] == 403


def test_a_token_of_no_lease_is_refused_everywhere(ask, created):
    for token in ("x", created["token"][:-1] + "g"):
        status, error = ask("PATCH", "/leases/self", {"memory": "1GiB"}, token=token)
        assert (status, error["error"]["code"]) == (403, "forbidden")
        assert token not in json.dumps(error)


def test_self_without_a_token_is_not_found(ask):
    assert ask("GET", "/leases/self")[0] == 404


@pytest.mark.parametrize("lease_id", ["none", "..%2f..", "%00", "a" * 5000])
def test_an_unknown_lease_is_not_found(ask, lease_id):
    for method, path, body in (
        ("GET", f"/leases/{lease_id}", None),
        ("PATCH", f"/leases/{lease_id}", {"memory": "1GiB"}),
        ("DELETE", f"/leases/{lease_id}", None),
        ("POST", f"/leases/{lease_id}/interrupt", None),
    ):
        assert ask(method, path, body)[0] == 404


@pytest.mark.parametrize("pid", [0, -1, 2**31, 2**70, "1", None, 1.5, True])
def test_a_pid_that_is_none_is_refused(ask, created, pid):
    status, error = ask("POST", f"/leases/{created['lease']['id']}/processes", {"pid": pid})
    assert (status, error["error"]["field"]) == (400, "pid")


def test_a_dead_pid_is_refused(ask, created):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert ask("POST", f"/leases/{created['lease']['id']}/processes", {"pid": child.pid})[0] == 400


@pytest.mark.parametrize("open_cells", [-1, "1", None, 0.5, 2**40])
def test_a_wrong_activity_report_is_refused(ask, created, open_cells):
    assert ask("PUT", f"/leases/{created['lease']['id']}/activity", {"open_cells": open_cells})[0] == 400


def test_open_cells_decide_between_active_and_idle(ask, created):
    lease_id = created["lease"]["id"]
    assert ask("POST", f"/leases/{lease_id}/processes", {"pid": os.getpid()})[0] == 204
    assert ask("PUT", f"/leases/{lease_id}/activity", {"open_cells": 1})[0] == 204
    assert ask("GET", f"/leases/{lease_id}")[1]["state"] == "active"
    ask("PUT", f"/leases/{lease_id}/activity", {"open_cells": 0})
    lease = ask("GET", f"/leases/{lease_id}")[1]
    assert lease["state"] == "idle" and lease["idle_since"] >= lease["created"]
    ask("PUT", f"/leases/{lease_id}/activity", {"open_cells": 0})
    assert ask("GET", f"/leases/{lease_id}")[1]["idle_since"] == lease["idle_since"]


def test_an_interrupt_raises_the_cancel_counter(arbiter, ask, created):
    shim = arbiter.shim(created)
    shim.attach()
    assert ask("POST", f"/leases/{created['lease']['id']}/interrupt")[0] == 204
    assert shim.page.cancel == 1
    shim.close()


def test_a_released_lease_is_gone(ask, created):
    lease_id = created["lease"]["id"]
    assert ask("DELETE", f"/leases/{lease_id}")[0] == 204
    assert ask("DELETE", f"/leases/{lease_id}")[0] == 404
    assert ask("GET", "/leases/self", token=created["token"])[0] == 403


def test_events_tell_a_leases_life_in_order(arbiter):
    events, subscribed = [], threading.Event()
    stream = arbiter.client.events(subscribed=subscribed.set)
    listener = threading.Thread(target=lambda: events.extend(_until_released(stream)))
    listener.start()
    assert subscribed.wait(10)
    created = arbiter.client.create_lease(name="e", kernel_id="k")
    shim = arbiter.shim(created)
    shim.attach()
    shim.reserve(17 * GIB)
    arbiter.client.patch_lease(created["lease"]["id"], memory="8GiB")
    arbiter.client.release(created["lease"]["id"])
    listener.join(timeout=10)
    shim.close()
    for event in events:
        contract.check_event(event)
        assert (event["lease_id"], event["kernel_id"]) == (created["lease"]["id"], "k")
    assert [event["type"] for event in events] == ["created", "attached", "denied", "resized", "released"]
    assert "16 GiB" in events[2]["message"]


def _until_released(stream):
    for event in stream:
        yield event
        if event["type"] == "released":
            stream.close()
            return


def test_what_is_not_of_the_api_is_answered_in_its_form(arbiter):
    for method, path, status in (("GET", "/", 404), ("GET", "/vgpu/api/nothing", 404), ("DELETE", "/vgpu/api/pool", 405)):
        connection = http.client.HTTPConnection("arbiter")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.connect(str(arbiter.socket))
        connection.request(method, path)
        response = connection.getresponse()
        assert response.status == status
        assert set(json.loads(response.read())["error"]) == {"code", "message", "field", "value", "allowed"}
        connection.close()


def test_a_body_without_bound_is_cut_off_and_the_arbiter_lives(arbiter, ask):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(str(arbiter.socket))
        connection.sendall(b"POST /vgpu/api/leases HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n{")
        assert b"400" in connection.recv(4096)
    assert ask("GET", "/pool")[0] == 200


def test_the_client_raises_what_the_arbiter_says(arbiter):
    created = arbiter.client.create_lease(name="n")
    with pytest.raises(InvalidValue) as problem:
        arbiter.client.patch_lease(created["lease"]["id"], share=2)
    assert (problem.value.field, problem.value.value, problem.value.code) == ("share", 2, "invalid")
    assert problem.value.allowed
    with pytest.raises(InvalidValue) as problem:
        arbiter.client.lease("none")
    assert problem.value.code == "not_found"
    client = arbiter.client
    arbiter.client.release(created["lease"]["id"])
    arbiter.stop()
    with pytest.raises(ArbiterUnavailable):
        client.pool()
