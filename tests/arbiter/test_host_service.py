"""The host service between users: each is known by SO_PEERCRED, and none can touch what is another's."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import socket
import stat
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from jupyter_vgpu.native import protocol
from tests.arbiter import contract
from tests.arbiter.conftest import GIB, RunningArbiter
from tests.arbiter.shim import Shim
from tests.waiting import until

ALICE, BOB = 54321, 54322  # uids that need no account

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def _root() -> None:
    # Not a skip: `-m "not root"` leaves these out knowingly.
    assert os.geteuid() == 0, "two users are needed: run as root, or leave these out with -m 'not root'"


def request(path: str, method: str, target: str, body: Any = None, token: str | None = None) -> tuple[int, bytes]:
    """One request; (status, body). The other user's process can load no module, so the answer is judged where it came from."""
    connection = http.client.HTTPConnection("arbiter", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(path)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, f"/vgpu/api{target}", body=None if body is None else json.dumps(body), headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def attach(path: str, token: str) -> int:
    """The status that a shim of this user gets."""
    shim = Shim(path, token)
    try:
        return shim.attach().status
    finally:
        shim.close()


def read(path: str) -> int:
    return len(Path(path).read_bytes())


def _serve(uid: int, pipe: Connection) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    while True:
        function, arguments = pipe.recv()
        try:
            pipe.send((True, function(*arguments)))
        except OSError as error:
            pipe.send((False, type(error)))


class User:
    """A living process of a user, which does what it is told: who holds a lease must not die."""

    def __init__(self, uid: int, arbiter: RunningArbiter):
        self.uid, self._arbiter = uid, arbiter
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(uid, theirs))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, function: Callable, *arguments: Any) -> Any:
        """What the function returns in the user's process; an OSError is raised as its type."""
        self._pipe.send((function, arguments))
        assert self._pipe.poll(15), "the user's process does not answer"
        good, value = self._pipe.recv()
        if not good:
            raise value
        return value

    def ask(self, method: str, target: str, body: Any = None, *, token: str | None = None) -> tuple[int, Any]:
        status, answer = self.do(request, str(self._arbiter.socket), method, target, body, token)
        return status, contract.check(method, target, status, answer)

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


@pytest.fixture
def host(make_arbiter: Callable[..., RunningArbiter], directory: Path) -> RunningArbiter:
    arbiter = make_arbiter()
    for path in (directory, arbiter.directory):
        path.chmod(0o755)
    arbiter.start("--host")
    request(str(arbiter.socket), "GET", "/leases")  # loads what the users' processes cannot load themselves
    return arbiter


@pytest.fixture
def users(host: RunningArbiter) -> Iterator[tuple[User, User]]:
    both = User(ALICE, host), User(BOB, host)
    yield both
    for user in both:
        user.close()


@pytest.fixture
def leases(users: tuple[User, User]) -> tuple[dict, dict]:
    """One of Alice's, one of Bob's."""
    created = []
    for user in users:
        status, answer = user.ask("POST", "/leases", {"name": f"{user.uid}.ipynb", "memory": "4GiB"})
        assert status == 201
        created.append(answer)
    return tuple(created)


def test_sockets_are_open_to_all_and_the_rest_is_not(host, users):
    files = {path.name: path.stat() for path in host.directory.iterdir()}
    for name in ("arbiter.sock", "shim.sock"):
        assert stat.S_IMODE(files[name].st_mode) == 0o666
    private = [name for name in files if name.startswith(("journal.sqlite", "arbiter.lock"))]
    assert len(private) >= 2
    for name in private:
        assert stat.S_IMODE(files[name].st_mode) & 0o077 == 0
        with pytest.raises(PermissionError):
            users[0].do(read, str(host.directory / name))


def test_a_lease_belongs_to_the_user_who_asked(users, leases):
    assert [created["lease"]["uid"] for created in leases] == [ALICE, BOB]
    _, seen = users[1].ask("GET", "/leases")
    assert {lease["uid"] for lease in seen} == {ALICE, BOB}, "everybody sees who holds what"
    assert users[0].ask("PATCH", f"/leases/{leases[0]['lease']['id']}", {"memory": "6GiB"})[1]["parts"][0]["memory"] == 6 * GIB


def test_nobody_reads_a_token(host, users, leases):
    tokens = [created["token"] for created in leases]
    answers = [users[1].ask("GET", target)[1] for target in ("/pool", "/leases", f"/leases/{leases[0]['lease']['id']}", "/policy")]
    kept = b"".join(path.read_bytes() for path in host.directory.glob("journal.sqlite*"))
    for token in tokens:
        assert token not in json.dumps(answers)
        assert token.encode() not in kept, "a token is kept as its hash alone"
        assert token not in host.log()


@pytest.mark.parametrize(
    ("method", "below", "body"),
    [
        ("PATCH", "", {"memory": "1GiB"}),
        ("DELETE", "", None),
        ("POST", "/interrupt", None),
        ("PUT", "/activity", {"open_cells": 0}),
        ("POST", "/processes", {"pid": 1}),
    ],
)
@pytest.mark.parametrize("credential", ["none", "own token", "leaked token"])
def test_a_foreign_lease_cannot_be_touched(users, leases, method, below, body, credential):
    bob, target = users[1], f"/leases/{leases[0]['lease']['id']}"
    before = bob.ask("GET", target)[1]
    token = {"none": None, "own token": leases[1]["token"], "leaked token": leases[0]["token"]}[credential]
    status, answer = bob.ask(method, target + below, body, token=token)
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    assert leases[0]["token"] not in json.dumps(answer)
    assert bob.ask("GET", target)[1] == before


def test_a_leaked_token_attaches_nobody_but_its_user(host, users, leases):
    alice, bob = users
    shim_socket, token = leases[0]["shim_socket"], leases[0]["token"]
    assert bob.do(attach, shim_socket, token) == protocol.STATUS_UNKNOWN_TENANT
    assert [process["pid"] for process in bob.ask("GET", f"/leases/{leases[0]['lease']['id']}")[1]["processes"]] == []
    assert bob.ask("GET", "/leases/self", token=token)[0] == 403
    assert alice.do(attach, shim_socket, token) == protocol.STATUS_OK
    assert [process["pid"] for process in bob.ask("GET", f"/leases/{leases[0]['lease']['id']}")[1]["processes"]] == [alice.pid]


def test_nobody_takes_anothers_process_into_his_lease(users, leases):
    alice, bob = users
    own = f"/leases/{leases[1]['lease']['id']}/processes"
    for pid in (alice.pid, os.getpid(), 1):
        status, answer = bob.ask("POST", own, {"pid": pid})
        assert (status, answer["error"]["field"]) == (403, "pid")
    assert bob.ask("POST", own, {"pid": bob.pid})[0] == 204


def test_root_may_change_every_lease(host, leases):
    for created in leases:
        assert contract.ask(host.socket, "PATCH", f"/leases/{created['lease']['id']}", {"memory": "2GiB"})[0] == 200


def test_a_users_lease_ends_with_the_process_that_asked_for_it(host, users, leases):
    users[0].close()
    until(lambda: [lease["uid"] for lease in host.client.leases()] == [BOB], within=1.0)


def test_a_users_own_arbiter_serves_nobody_else(make_arbiter, directory):
    arbiter = make_arbiter()
    for path in (directory, arbiter.directory):
        path.chmod(0o755)
    arbiter.start()
    request(str(arbiter.socket), "GET", "/leases")
    bob = User(BOB, arbiter)
    try:
        with pytest.raises(PermissionError):
            bob.ask("GET", "/pool")
        arbiter.socket.chmod(0o666)  # even then: it asks who it is
        for method, target, body in (("GET", "/pool", None), ("GET", "/events", None), ("POST", "/leases", {"name": "n"})):
            assert bob.ask(method, target, body)[0] == 403
        assert arbiter.client.leases() == []
    finally:
        bob.close()
