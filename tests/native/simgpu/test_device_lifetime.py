"""The device process: how it starts and ends, who may speak to it, and what a client's death leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_vgpu.native import locate
from tests.native.simgpu import device_client
from tests.native.simgpu.conftest import Machine
from tests.native.simgpu.device_client import GRANULARITY, CallFailed
from tests.waiting import until

MIB, GIB = 1 << 20, 1 << 30
CONTEXT = 300 * MIB


def test_a_killed_process_frees_all_it_had_within_100_ms(simulated: Machine) -> None:
    gpu = simulated.connect()
    for _ in range(5):
        child = simulated.child()
        child.do("enter")
        child.do("allocate", 8 * GIB)
        child.do("map_memory", GRANULARITY)
        child.do("export_memory", GRANULARITY)
        child.do("spin", 60_000_000)
        assert gpu.used() == CONTEXT + 8 * GIB + 2 * GRANULARITY
        os.kill(child.pid, signal.SIGKILL)
        began = time.monotonic()
        until(lambda: gpu.used() == 0)
        assert time.monotonic() - began < 0.1
        assert gpu.processes() == {}


def test_a_child_that_inherited_the_connection_does_not_keep_the_dead_ones_memory(simulated: Machine) -> None:
    gpu = simulated.connect()
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from tests.native.simgpu.device_client import Connection\n"
        "gpu = Connection(Path(sys.argv[1])); gpu.enter(); gpu.allocate(1 << 30)\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(simulated.path)], cwd=device_client.ROOT, stdout=subprocess.PIPE, text=True
    )
    orphan = int(parent.stdout.readline())
    try:
        assert gpu.used() == CONTEXT + GIB
        parent.kill()
        parent.wait()
        until(lambda: gpu.used() == 0)
    finally:
        os.kill(orphan, signal.SIGKILL)
        parent.stdout.close()


def test_a_program_that_follows_under_the_same_pid_starts_anew(simulated: Machine) -> None:
    before = simulated.connect()
    before.enter()
    before.allocate(GIB)
    after = simulated.connect(program=2)
    assert after.used() == 0
    with pytest.raises(CallFailed):
        before.allocate(1)
    after.enter()
    assert after.used() == CONTEXT


def test_closing_the_last_connection_frees_what_was_the_clients(simulated: Machine) -> None:
    watcher = simulated.child()
    first, second = simulated.connect(), simulated.connect()
    first.enter()
    first.allocate(GIB)
    first._socket.shutdown(socket.SHUT_RDWR)
    assert second.used() == CONTEXT + GIB
    second._socket.shutdown(socket.SHUT_RDWR)
    until(lambda: watcher.do("used") == 0)


def test_a_neighbour_works_on_while_others_die_in_the_middle_of_calls(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address = gpu.allocate(4096)
    for _ in range(10):
        child = simulated.child()
        child.do("enter")
        # It is killed at a random point of these: 2000 launches fill its queue, so it waits in the device process at the end.
        child.process.stdin.write('["spin", [100000], {}]\n' * 2000)
        child.process.stdin.flush()
        gpu.write(address, b"still")
        began = time.monotonic()
        child.kill()
        gpu.spin(100)
        gpu.synchronize()
        assert gpu.read(address, 5) == b"still"
        assert time.monotonic() - began < 1
    until(lambda: gpu.used() == CONTEXT + 4096)


def test_bytes_that_follow_no_protocol_end_only_their_own_connection(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    hello = bytes(16)  # call 0, no payload
    for junk in (b"\xff" * 64, hello + b"\xff" * 8, os.urandom(4096), b"", hello[:5]):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(simulated.path))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stranger.sendall(junk)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(1 << 16):
                    pass
    assert gpu.used() == CONTEXT
    assert simulated.running()


def test_the_socket_is_its_users_own(simulated: Machine) -> None:
    assert stat.S_IMODE(simulated.path.stat().st_mode) == 0o600


def test_devices_keep_their_uuids_over_a_restart(simulated: Machine) -> None:
    def uuids() -> list[bytes]:
        connection = simulated.connect()
        return [bytes(device.uuid) for device in connection.hello.device[:2]]

    before = uuids()
    assert before[0] != before[1]
    os.kill(simulated.pid, signal.SIGKILL)
    until(lambda: not simulated.running())
    simulated.start()
    assert uuids() == before


def test_it_ends_by_itself_some_seconds_after_its_last_client(simulated: Machine) -> None:
    child = simulated.child()
    child.do("enter")
    child.kill()
    until(lambda: not simulated.path.exists(), within=30)
    until(lambda: not simulated.running())
    simulated.start()  # for the fixture's own check
    assert simulated.connect().used() == 0


@pytest.mark.parametrize("spec", ["", "lots", "0x1GiB", "1x1KiB", "99x1GiB", "1x16GiB,context=much"])
def test_a_bad_spec_is_refused_with_what_is_allowed(tmp_path: Path, spec: str) -> None:
    program = os.environ.get("VGPU_TEST_SIMGPU") or str(locate.library(locate.SIMGPU))
    result = subprocess.run([program, str(tmp_path / "s"), spec], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("vgpu-simgpu: VGPU_SIMULATED: ")
    assert not (tmp_path / "s").exists()


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    program = os.environ.get("VGPU_TEST_SIMGPU") or str(locate.library(locate.SIMGPU))
    result = subprocess.run([program, str(tmp_path / ("s" * 200)), "1x1GiB"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "name too long" in result.stderr.lower()


def test_it_holds_no_descriptor_of_whoever_started_it(simulated: Machine) -> None:
    reading, writing = os.pipe()
    os.kill(simulated.pid, signal.SIGKILL)
    until(lambda: not simulated.running())
    simulated.start(pass_descriptors=(writing,))
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_shared_memory_cannot_be_shrunk_under_the_device_process(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    gpu.call("HostAlloc", address=0x7E0000000000, size=4096, kind=device_client.ENUMS["Memory"]["kHost"])
    for descriptor in (gpu.staging, gpu.descriptor):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
