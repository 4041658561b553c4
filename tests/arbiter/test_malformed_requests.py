"""Whatever is sent to the HTTP socket, the answer is the API's Error, the log shows no traceback, and the pool is as it was."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from jupyter_vgpu.arbiter.http import BODY_MAXIMUM
from tests.arbiter import contract
from tests.arbiter.conftest import RunningArbiter

ERROR = Draft202012Validator({"$ref": "#/components/schemas/Error", "components": contract.document()["components"]})
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW")


def exchange(path, data: bytes, *, whole: bool = True) -> bytes:
    """What the arbiter answers to these bytes until it closes the connection. With `whole` false they are no whole request, and no more
    will come."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        try:
            connection.sendall(data)
            if not whole:
                connection.shutdown(socket.SHUT_WR)
        except OSError:  # it has heard enough
            pass
        answer = b""
        try:
            while part := connection.recv(1 << 16):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def request(path, method: str, target: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes]:
    head = f"{method} {target} HTTP/1.1\r\nHost: arbiter\r\nConnection: close\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    answer = exchange(path, head.encode() + body)
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), content


@pytest.fixture(scope="module")
def arbiter() -> Iterator[RunningArbiter]:
    """One for all of these tests: it has to stand them in a row, too."""
    path = Path(tempfile.mkdtemp(prefix="vgpu-t-"))
    running = RunningArbiter(path, uuids=(f"GPU-{os.getpid():08x}-2222-3333-4444-00000000000f",)).start()
    yield running
    running.stop()
    shutil.rmtree(path)


@pytest.fixture
def lease(arbiter: RunningArbiter) -> Iterator[dict]:
    """After the test the lease is as it was, the arbiter serves, and it has had no trouble with anything that came."""
    created = arbiter.client.create_lease(name="n", memory="4GiB")["lease"]
    yield created
    assert arbiter.client.lease(created["id"])["parts"] == created["parts"]
    arbiter.client.release(created["id"])
    assert "Traceback" not in arbiter.log()


UNKNOWN = ["/", "/vgpu/api", "/vgpu/api/", "/vgpu/api/nothing", "/vgpu/api/leases/a/b/c", "/%00", "/vgpu/api/pool/", "*"]


@pytest.mark.parametrize("target", UNKNOWN)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_not_found(arbiter, lease, method, target):
    status, body = request(arbiter.socket, method, target)
    ERROR.validate(json.loads(body))
    assert (status, json.loads(body)["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "target"),
    [(method, target) for target, item in contract.document()["paths"].items() for method in METHODS if method.lower() not in item],
)
def test_a_method_that_a_path_does_not_have_is_refused(arbiter, lease, method, target):
    status, body = request(arbiter.socket, method, "/vgpu/api" + target.replace("{lease_id}", lease["id"]))
    assert status == 405
    if method != "HEAD":
        ERROR.validate(json.loads(body))


HUGE = b'{"name": "' + b"x" * BODY_MAXIMUM + b'"}'
BODIES = {
    "huge": HUGE,
    **{f"nested {depth}": b'{"name": "n", "memory": ' + b"[" * depth + b"]" * depth + b"}" for depth in (9, 900, 20_000)},
    "empty": b"",
    "cut off": b"{",
    "no text": b"\xff\xfe{}",
    "null": b"null",
    "list": b"[]",
    "string": b'"x"',
    "number": b"7",
    "too much": b'{"name": "n"}}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(("method", "target"), [("POST", "/leases"), ("PATCH", "/leases/{id}"), ("PUT", "/leases/{id}/activity")])
def test_a_body_that_is_no_request_is_refused(arbiter, lease, method, target, body):
    status, answer = request(arbiter.socket, method, "/vgpu/api" + target.replace("{id}", lease["id"]), body)
    assert status == 400
    ERROR.validate(json.loads(answer))
    assert len(answer) < 2000, "the error does not repeat all that came"
    assert len(arbiter.client.leases()) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET /vgpu/api/pool HTTP/9.9\r\n\r\n",
        b"GET /vgpu/api/pool HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET /vgpu/api/pool HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /vgpu/api/leases HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /vgpu/api/pool HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"PATCH /vgpu/api/leases/x HTTP/1.1\r\nContent-Length: 10\r\n\r\n{",
        b"POST /vgpu/api/leases HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n{",
    ],
    ids=range(10),
)
def test_what_is_no_http_is_dropped(arbiter, lease, data):
    answer = exchange(arbiter.socket, data, whole=False)
    assert not answer or b" 400 " in answer.splitlines()[0]


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Basic abc", "bearer x", "Bearer \xe9\xff", "Bearer " + "0" * 64, "Bearer " + "x" * 10_000]
)
def test_a_token_of_nobody_is_forbidden_and_not_repeated(arbiter, lease, header):
    status, body = request(arbiter.socket, "GET", "/vgpu/api/pool", headers=f"Authorization: {header}\r\n")
    ERROR.validate(json.loads(body))
    assert (status, json.loads(body)["error"]["value"]) == (403, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
FIELDS = st.sampled_from(
    ["name", "kernel_id", "path", "class", "memory", "compute", "compute_cap", "share", "priority", "visible_devices", "strict", "device"]
) | st.text(max_size=10)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(FIELDS, JSON, max_size=4))
def test_a_lease_of_anything_is_made_or_refused(arbiter, lease, body):
    status, answer = contract.ask(arbiter.socket, "POST", "/leases", body)
    assert status in (201, 400)
    if status == 201:
        arbiter.client.release(answer["lease"]["id"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(FIELDS, JSON, max_size=4))
def test_a_change_to_anything_is_made_or_refused_whole(arbiter, lease, body):
    before = arbiter.client.lease(lease["id"])
    status, answer = contract.ask(arbiter.socket, "PATCH", f"/leases/{lease['id']}", body)
    assert status in (200, 400, 409)
    if status != 200:
        assert arbiter.client.lease(lease["id"]) == before
    arbiter.client.patch_lease(lease["id"], memory="4GiB", compute=1.0, compute_cap=None, priority="interactive")
