"""A device process of the test's own, at a short path, ended after it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_vgpu.native import locate
from tests.native.simgpu.device_client import Child, Connection
from tests.native.simgpu.programs import Programs


class Machine:
    """Starts a device process for `spec`; gives connections to it and processes that use it."""

    def __init__(self, directory: Path, spec: str) -> None:
        self.path = directory / "gpu.sock"
        self.spec = spec
        self._children: list[Child] = []
        self._connections: list[Connection] = []
        self.start()

    def start(self, *, pass_descriptors: tuple[int, ...] = ()) -> None:
        # VGPU_TEST_SIMGPU: the same tests on a build with a sanitizer.
        program = os.environ.get("VGPU_TEST_SIMGPU") or str(locate.library(locate.SIMGPU))
        subprocess.run([program, str(self.path), self.spec], check=True, pass_fds=pass_descriptors)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self.path))
            self.pid = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def connect(self, *, program: int = 1) -> Connection:
        connection = Connection(self.path, program=program)
        self._connections.append(connection)
        return connection

    def child(self, *, descriptors: tuple[int, ...] = ()) -> Child:
        child = Child(self.path, descriptors=descriptors)
        self._children.append(child)
        return child

    def running(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()

    def resident(self) -> int:
        """Bytes of RAM that the device process has."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def end(self) -> None:
        for child in self._children:
            if child.process.poll() is None:
                child.kill()
        for connection in self._connections:
            connection.close()
        assert self.running(), "the device process died"
        os.kill(self.pid, signal.SIGKILL)


@contextmanager
def started(spec: str) -> Iterator[Machine]:
    """A running machine in a directory of its own; both are gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="vgpu-sim-"))  # tmp_path can be too long for a socket
    machine = Machine(directory, spec)
    try:
        yield machine
    finally:
        machine.end()
        shutil.rmtree(directory)


@pytest.fixture
def simulated() -> Iterator[Machine]:
    """Two simulated GPUs of 16 GiB, 300 MiB a context."""
    with started("2x16GiB") as machine:
        yield machine


@pytest.fixture
def programs(simulated: Machine) -> Programs:
    """CUDA and NVML programs on `simulated`."""
    # A program may import for longer than the device process waits for its first client.
    simulated.connect()
    return Programs(simulated.path.parent, socket=simulated.path, spec=simulated.spec)
