"""A whole pool of a test's own: a real arbiter, simulated devices, and tenants under the shim."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_vgpu.arbiter.client import ArbiterClient, ArbiterUnavailable
from jupyter_vgpu.arbiter.runtime import Runtime
from jupyter_vgpu.native.environment import simgpu_socket, tenant_environment
from tests.native.simgpu.device_client import Connection

ROOT = Path(__file__).resolve().parents[2]
MIB, GIB = 1024**2, 1024**3
DEVICES, DEVICE, CONTEXT = 2, 16 * GIB, 300 * MIB


class CudaError(Exception):
    """CUDA's name of the error is the text."""


class Tenant:
    """A CUDA program (tenant.py) under a lease, or with `created` None as a program that is no tenant."""

    def __init__(self, stack: Stack, created: dict[str, Any] | None, environ: dict[str, str]):
        self.created = created
        self._stack = stack
        # A file, not a pipe: nobody reads it while the program runs.
        self._errors = open(stack.directory / f"tenant-{len(stack.tenants)}.log", "w+b")
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "stack" / "tenant.py")],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lease_id(self) -> str:
        return self.created["lease"]["id"]

    @property
    def lease(self) -> dict[str, Any]:
        return self._stack.client.lease(self.lease_id)

    def send(self, method: str, *arguments: Any) -> None:
        self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self.process.stdin.flush()

    def answered(self, *, within: float) -> bool:
        return bool(select.select([self.process.stdout], [], [], within)[0])

    def receive(self) -> Any:
        """The answer to the last `send`. Raises `CudaError`."""
        line = self.process.stdout.readline()
        assert line, f"the program has ended:\n{self.errors()}"
        error, value = json.loads(line)
        if error:
            raise CudaError(error)
        return value

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.send(method, *arguments)
            return self.receive()

        return call

    def patch(self, **change: Any) -> dict[str, Any]:
        return self._stack.client.patch_lease(self.lease_id, **change)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL; returns once the process is dead."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for file in (self.process.stdin, self.process.stdout, self._errors):
            with contextlib.suppress(OSError):  # what was not flushed to a dead process
                file.close()


class Stack:
    def __init__(self, directory: Path):
        self.directory = directory
        self.tenants: list[Tenant] = []
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(("VGPU_", "CUDA_", "LD_"))}
        self.environ |= {
            "VGPU_SIMULATED": f"{DEVICES}x{DEVICE // GIB}GiB",
            "VGPU_SOCKET": str(directory / "arbiter.sock"),
            "VGPU_POLICY": str(directory / "policy.yaml"),
            "DEMO_KERNELS": str(ROOT / "examples" / "demo_kernels.ptx"),
        }
        self.client = ArbiterClient(Runtime(directory=directory, socket=directory / "arbiter.sock"))
        self._books: Connection | None = None

    def start(self, *, policy: str | None = None) -> Stack:
        if policy is not None:
            (self.directory / "policy.yaml").write_text(policy)
        ArbiterClient.start(self.environ)
        return self

    def tenant(self, *, memory: object = "4GiB", environ: dict[str, str] | None = None, **wish: Any) -> Tenant:
        created = self.client.create_lease(name="a test's tenant", memory=memory, strict=True, **wish)
        return self.join(created, environ=environ)

    def join(self, created: dict[str, Any], *, environ: dict[str, str] | None = None) -> Tenant:
        """A process of the tenant whose lease this is. `environ` is added to what the tenant has, as by a user's own hand."""
        whole = tenant_environment(self.environ, created=created, socket=self.client.socket, startup=False)
        self.tenants.append(Tenant(self, created, whole | (environ or {})))
        return self.tenants[-1]

    def unmanaged(self) -> Tenant:
        """A program that uses the simulated driver without a shim."""
        from jupyter_vgpu.native.links import link_directories

        environ = self.environ | {
            "LD_LIBRARY_PATH": str(link_directories(self.environ).sim),
            "VGPU_SIMGPU_SOCKET": self.device_socket,
        }
        self.tenants.append(Tenant(self, None, environ))
        return self.tenants[-1]

    @property
    def device_socket(self) -> str:
        return simgpu_socket(self.environ, directory=self.directory)

    @property
    def books(self) -> Connection:
        """The simulated driver's own books: `used(device)`, `processes(device)`."""
        if self._books is None:
            self._books = Connection(Path(self.device_socket))
        return self._books

    def used(self, index: int = 0) -> int:
        """Bytes that all programs hold on a device, by the simulated driver's books."""
        return self.books.used(index)

    def device(self, index: int = 0) -> dict[str, Any]:
        return self.client.pool()["devices"][index]

    @property
    def arbiter_pid(self) -> int:
        return self.client.pool()["arbiter"]["pid"]

    def kill_arbiter(self) -> None:
        _end(self.arbiter_pid, signal.SIGKILL)

    def close(self) -> None:
        for tenant in self.tenants:
            tenant.close()
        with contextlib.suppress(ArbiterUnavailable):
            _end(self.arbiter_pid, signal.SIGTERM)
        if self._books is not None:
            self._books.close()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(self.device_socket)
            _end(struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0], signal.SIGTERM)


def _end(pid: int, number: int) -> None:
    """Returns once the process is dead."""
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, number)
        assert select.select([descriptor], [], [], 10)[0], f"process {pid} does not end on signal {number}"
    finally:
        os.close(descriptor)
