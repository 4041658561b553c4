"""The extension in a real Jupyter server, over a real arbiter with simulated devices; every answer is held against openapi.yaml."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.auth import Authorizer
from prometheus_client.parser import text_string_to_metric_families

from jupyter_vgpu.arbiter.client import ArbiterClient
from tests.cli.own_pool import own_pool
from tests.provisioner.kernels import MEMORY, run, until

GIB = 1 << 30


@pytest.fixture
def pool(monkeypatch):
    """Two simulated GPUs."""
    for name in [name for name in os.environ if name.startswith(("VGPU_", "LD_", "CUDA_"))]:
        monkeypatch.delenv(name)
    with own_pool() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def jp_server_cleanup(pool, jp_server_cleanup):
    """pytest-jupyter's, ended before the pool: a server that lives would start the arbiter again."""


@pytest.fixture
def server(pool, jp_serverapp):
    return jp_serverapp


@pytest.fixture
def start_kernel(server, jp_fetch):
    """Starts a kernel over REST and gives its manager in the server."""

    async def start():
        response = await jp_fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3"}), request_timeout=60)
        return server.kernel_manager.get_kernel(json.loads(response.body)["id"])

    return start


@pytest.fixture
def lease_of(ask):
    async def lease(manager):
        status, leases = await ask("GET", f"/leases?kernel_id={manager.kernel_id}")
        assert status == 200
        return leases[0] if leases else None

    return lease


@pytest.fixture
def heard(server):
    """The pool's events on Jupyter's bus, from now on."""
    events = []

    async def listen(logger, schema_id, data):
        if "jupyter_vgpu" in schema_id:
            events.append(data)

    server.event_logger.add_listener(listener=listen)
    yield events
    server.event_logger.remove_listener(listener=listen)


async def connected(ask):
    """Waits until the server has its arbiter. Every test does: an arbiter that is only starting could not be ended after it."""

    async def devices():
        status, pool = await ask("GET", "/pool")
        assert status == 200
        return pool["devices"] and pool

    return await until(devices, what="the connection to the arbiter")


@contextlib.asynccontextmanager
async def open_cell(manager, directory):
    """A cell that runs for as long as the context does; gives the client that sent it."""
    done = directory / "done"
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        client.execute(f"import os, time\nwhile not os.path.exists({str(done)!r}): time.sleep(0.02)")
        yield client
    finally:
        done.touch()
        client.stop_channels()


async def test_pool_shows_simulated_devices_and_says_so(server, ask):
    pool = await connected(ask)
    assert [device["memory_total"] for device in pool["devices"]] == [16 * GIB] * 2
    assert pool["simulated"] and "simulated" in pool["message"]


async def test_kernel_started_over_rest_sees_its_quota_and_a_resize_at_once(server, ask, start_kernel, lease_of):
    await connected(ask)
    manager = await start_kernel()
    assert await run(manager, MEMORY) == str(16 * GIB)
    lease = await lease_of(manager)
    status, changed = await ask("PATCH", f"/leases/{lease['id']}", {"memory": "4GiB", "compute": 0.25})
    assert status == 200
    assert {(part["memory"], part["compute"]) for part in changed["parts"]} == {(4 * GIB, 0.25)}
    assert await run(manager, "print(driver.cuMemGetInfo()[2])") == str(4 * GIB)
    assert (await ask("GET", f"/leases/{lease['id']}"))[1]["parts"] == changed["parts"]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"class": "nonsense"}, "class", "nonsense"),
        ({"memory": "much"}, "memory", "much"),
        ({"memory": "999TiB"}, "memory", "999"),
        ({"memory": -1}, "memory", "-1"),
        ({"share": 0}, "share", "0"),
        ({"share": 2}, "share", "2"),
        ({"compute": 0}, "compute", "0"),
        ({"compute": 2}, "compute", "2"),
        ({"memory": "4GiB", "compute": 2}, "compute", "2"),
        ({"priority": "urgent"}, "priority", "urgent"),
        ({"device": "GPU-none"}, "device", "GPU-none"),
        ({"memry": "4GiB"}, "memry", "memry"),
        ({"id": "x"}, "id", "id"),
        ({"self": "x"}, "self", "self"),
        ({}, None, "empty"),
        ([], None, "object"),
        ("4GiB", None, "object"),
    ],
)
async def test_bad_change_names_field_value_and_allowed_and_changes_nothing(server, ask, start_kernel, lease_of, change, field, words):
    await connected(ask)
    before = await lease_of(await start_kernel())
    status, answer = await ask("PATCH", f"/leases/{before['id']}", change)
    assert status == 400, answer
    error = answer["error"]
    assert error["field"] == field and words in error["message"] and error["allowed"]
    assert (await ask("GET", f"/leases/{before['id']}"))[1]["parts"] == before["parts"]


async def test_body_that_is_no_json_is_refused(server, ask, start_kernel, lease_of):
    await connected(ask)
    lease = await lease_of(await start_kernel())
    status, answer = await ask("PATCH", f"/leases/{lease['id']}", raw="memory=4GiB")
    assert status == 400 and "JSON" in answer["error"]["message"]


async def test_change_of_a_foreign_lease_is_forbidden_and_names_it(server, ask):
    await connected(ask)
    foreign = ArbiterClient.find(os.environ).create_lease(name="somebody's command")["lease"]
    status, answer = await ask("PATCH", f"/leases/{foreign['id']}", {"memory": "4GiB"})
    assert status == 403
    assert answer["error"]["field"] == "lease_id" and answer["error"]["value"] == foreign["id"]
    assert "somebody's command" in answer["error"]["message"]
    assert (await ask("GET", f"/leases/{foreign['id']}"))[1]["parts"] == foreign["parts"]


@pytest.mark.parametrize("lease_id", ["none", "self", "..%2Fpool"])
async def test_lease_that_does_not_exist_is_not_found(server, ask, lease_id):
    await connected(ask)
    for method, body in (("GET", None), ("PATCH", {"memory": "4GiB"})):
        status, answer = await ask(method, f"/leases/{lease_id}", body)
        assert status == 404 and answer["error"]["code"] == "not_found"


async def test_nobody_is_served_without_the_token(server, ask):
    await connected(ask)
    for path in ("/pool", "/leases", "/leases/x", "/policy"):
        status, answer = await ask("GET", path, headers={"Authorization": "token wrong"})
        assert status == 403 and answer["error"]["code"] == "forbidden"


async def test_the_authorizer_decides_and_is_asked_for_the_resource_vgpu(server, ask):
    await connected(ask)
    asked = []

    class ReadOnly(Authorizer):
        def is_authorized(self, handler, user, action, resource):
            asked.append((action, resource))
            return action == "read"

    server.web_app.settings["authorizer"] = ReadOnly(parent=server)
    assert (await ask("GET", "/policy"))[0] == 200
    status, answer = await ask("PATCH", "/leases/x", {"memory": "4GiB"})
    assert status == 403 and answer["error"]["code"] == "forbidden"
    assert asked == [("read", "vgpu"), ("write", "vgpu")]


async def test_shutdown_over_rest_releases_the_lease(server, ask, jp_fetch, start_kernel, lease_of):
    await connected(ask)
    manager = await start_kernel()
    assert await lease_of(manager)
    await jp_fetch("api", "kernels", manager.kernel_id, method="DELETE")
    assert await lease_of(manager) is None


async def test_restart_over_rest_keeps_the_lease(server, ask, jp_fetch, start_kernel, lease_of):
    await connected(ask)
    manager = await start_kernel()
    before = await lease_of(manager)
    await jp_fetch("api", "kernels", manager.kernel_id, "restart", method="POST", body="{}", request_timeout=60)
    assert (await lease_of(manager))["id"] == before["id"]


async def test_kernel_that_the_server_restarts_after_a_crash_keeps_its_lease_and_stays_watched(
    server, ask, start_kernel, lease_of, tmp_path
):
    await connected(ask)
    manager = await start_kernel()
    watches = server.web_app.settings["jupyter_vgpu"].watcher._watches
    await until(lambda: manager.kernel_id in watches)
    before, pid = await lease_of(manager), manager.provisioner.pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: manager.provisioner.pid != pid and manager.has_kernel, what="the restart")
    assert (await lease_of(manager))["id"] == before["id"]
    async with open_cell(manager, tmp_path):
        await until(lambda: len(watches[manager.kernel_id].cells) == 1, what="the open cell")
    await until(lambda: len(watches[manager.kernel_id].cells) == 0, what="the closed cell")


async def test_lease_of_a_kernel_that_the_server_gave_up_is_released(server, ask, start_kernel, lease_of):
    await connected(ask)
    manager = await start_kernel()
    await until(lambda: manager.kernel_id in server.web_app.settings["jupyter_vgpu"].watcher._watches)
    manager.stop_restarter()
    os.kill(manager.provisioner.pid, signal.SIGKILL)
    await until(lambda: manager.provisioner.process.poll() is not None)
    manager._restarter._fire_callbacks("dead")  # what the restarter does after its fifth attempt
    assert manager.kernel_id not in server.kernel_manager

    async def gone():
        return await lease_of(manager) is None

    await until(gone)


async def test_running_cell_is_activity_and_its_end_is_idle(server, ask, start_kernel, lease_of, tmp_path):
    await connected(ask)
    manager = await start_kernel()
    watches = server.web_app.settings["jupyter_vgpu"].watcher._watches
    await until(lambda: manager.kernel_id in watches)

    async def state(expected):
        return (await lease_of(manager))["state"] == expected

    async with open_cell(manager, tmp_path) as client:
        await until(lambda: len(watches[manager.kernel_id].cells) == 1, what="the open cell")
        await until(lambda: state("active"), what="active")
        client.kernel_info()  # a reload in mid-cell
    await until(lambda: state("idle"), what="idle")
    assert len(watches[manager.kernel_id].cells) == 0


async def test_events_arrive_on_jupyters_bus(server, ask, heard, jp_fetch, start_kernel, lease_of):
    await connected(ask)
    manager = await start_kernel()
    await run(manager, MEMORY)
    lease = await lease_of(manager)
    await ask("PATCH", f"/leases/{lease['id']}", {"memory": "4GiB"})
    await jp_fetch("api", "kernels", manager.kernel_id, method="DELETE")
    await until(lambda: heard and heard[-1]["type"] == "released")
    kinds = [event["type"] for event in heard if event["lease_id"] == lease["id"]]
    assert [kind for kind in kinds if kind in ("created", "attached", "resized", "released")] == [
        "created",
        "attached",
        "resized",
        "released",
    ]
    assert {event["kernel_id"] for event in heard} == {manager.kernel_id}


async def test_server_connects_anew_after_the_arbiter_was_killed(server, ask, start_kernel, lease_of):
    pool = await connected(ask)
    manager = await start_kernel()
    before = await lease_of(manager)
    os.kill(pool["arbiter"]["pid"], signal.SIGKILL)

    async def another():
        _, now = await ask("GET", "/pool")
        return now["arbiter"] and now["arbiter"]["pid"] != pool["arbiter"]["pid"] and now

    now = await until(another, what="the next arbiter")
    assert [lease["id"] for lease in now["leases"]] == [before["id"]]
    assert await run(manager, "print(6 * 7)") == "42"


async def test_metrics_are_on_jupyters_own_page(server, ask, jp_fetch, start_kernel, lease_of):
    await connected(ask)
    lease = await lease_of(await start_kernel())
    text = ""

    async def scraped():
        nonlocal text
        text = (await jp_fetch("metrics")).body.decode()
        return lease["id"] in text

    await until(scraped)
    assert "vgpu_arbiter_up 1.0" in text
    figures = {(s.name, s.labels.get("kind")): s.value for family in text_string_to_metric_families(text) for s in family.samples}
    assert figures["vgpu_device_memory_bytes", "total"] == 16 * GIB
    assert figures["vgpu_lease_memory_bytes", "limit"] == 16 * GIB


async def test_interrupt_by_message_ends_the_leases_waits_too(server, ask, jp_fetch, start_kernel, monkeypatch):
    await connected(ask)
    manager = await start_kernel()
    extension = server.web_app.settings["jupyter_vgpu"]
    await until(lambda: manager.kernel_id in extension.watcher._watches)
    interrupted = []

    async def interrupt(lease_id):
        interrupted.append(lease_id)

    monkeypatch.setattr(extension.monitor.client, "interrupt", interrupt)
    manager.kernel_spec.interrupt_mode = "message"
    await jp_fetch("api", "kernels", manager.kernel_id, "interrupt", method="POST", body="{}")
    await until(lambda: interrupted)
    assert interrupted == [extension.watcher._watches[manager.kernel_id].lease_id]


async def test_vgpu_is_the_default_provisioner_of_the_server(server, ask):
    await connected(ask)
    assert KernelProvisionerFactory.instance().default_provisioner_name == "vgpu"


async def test_a_stopped_extension_leaves_no_task_and_no_metric(server, ask, jp_fetch, start_kernel):
    await connected(ask)
    await start_kernel()
    extension = server.web_app.settings["jupyter_vgpu"]
    await extension.stop_extension()
    assert "vgpu_" not in (await jp_fetch("metrics")).body.decode()
    assert not [task for task in asyncio.all_tasks() if "jupyter_vgpu" in repr(task.get_coro())]
