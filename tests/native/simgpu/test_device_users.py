"""Whose devices they are: a user's are his own, the host service's everybody's."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from tests.native.simgpu.conftest import Machine
from tests.native.simgpu.device_client import Connection

ALICE = 54321  # a uid that needs no account

pytestmark = pytest.mark.root


def _ask(path: Path, answer) -> None:
    os.setgroups([])
    os.setgid(ALICE)
    os.setuid(ALICE)
    try:
        connection = Connection(path)
        connection.enter()
        connection.allocate(1 << 20)
        answer.send(sorted(connection.processes()))
    except (OSError, EOFError) as error:
        answer.send(type(error).__name__)


@pytest.mark.parametrize(("mode", "opened", "served"), [(0o755, 0o755, True), (0o700, 0o755, False), (0o777, 0o777, False)])
def test_other_users_are_served_where_root_opened_the_directory_to_all(mode: int, opened: int, served: bool) -> None:
    assert os.geteuid() == 0, "two users are needed: run as root, or leave this out with -m 'not root'"
    directory = Path(tempfile.mkdtemp(prefix="vgpu-sim-"))
    directory.chmod(mode)
    machine = Machine(directory, "16GiB")
    try:
        assert stat.S_IMODE(machine.path.stat().st_mode) == (0o666 if served else 0o600)
        directory.chmod(opened)
        if not served:
            machine.path.chmod(0o666)  # even then: it looks who comes
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        alice = context.Process(target=_ask, args=(machine.path, theirs))
        alice.start()
        assert ours.poll(15)
        answer = ours.recv()
        alice.join()
        assert (answer == [alice.pid]) == served, answer
    finally:
        machine.end()
        shutil.rmtree(directory)
