"""Whatever two tenants do, shim, arbiter and driver agree at every step, and nothing is left at the end."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jupyter_vgpu.native.environment import tenant_environment
from jupyter_vgpu.pool.model import InvalidValue
from tests.stack.stack import CONTEXT, GIB, MIB, ROOT, CudaError, Stack
from tests.waiting import until

FAMILIES = ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemCreate")
LIMIT = 4 * GIB
"""At first; two tenants never fill the 16 GiB device, so the limit alone decides."""


def taken_by(family: str, size: int) -> int:
    """What an allocation takes: rows are padded to 512 bytes, physical memory comes in 2 MiB."""
    if family == "cuMemAllocPitch":
        return 100_352 * (size // 100_000)
    return size // (2 * MIB) * (2 * MIB) if family == "cuMemCreate" else size


class Forked:
    """A program of tenant.py's second kind, under the lease `created`."""

    def __init__(self, path: str, created: dict[str, Any]):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._file = self._socket.makefile("rw")
        variables = {"VGPU_TOKEN": created["token"], "VGPU_LEASE": created["lease"]["id"]}
        self._file.write(json.dumps(variables) + "\n")
        self.pid = self.call("pid")

    def call(self, method: str, *arguments: Any) -> Any:
        self._file.write(json.dumps([method, *arguments]) + "\n")
        self._file.flush()
        error, value = json.loads(self._file.readline())
        if error:
            raise CudaError(error)
        return value

    def kill(self) -> None:
        descriptor = os.pidfd_open(self.pid)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        assert select.select([descriptor], [], [], 10)[0]
        os.close(descriptor)
        self._file.close()
        self._socket.close()


@dataclass
class Model:
    """What must be true of one tenant."""

    created: dict[str, Any]
    program: Forked
    limit: int = LIMIT
    held: dict[int, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        return CONTEXT + sum(self.held.values())


class Pair:
    """Two tenants and the model of each; every step checks itself."""

    def __init__(self, stack: Stack, forks: str):
        self._stack, self._forks = stack, forks
        self.tenants = [self._new() for _ in range(2)]

    def _new(self) -> Model:
        created = self._stack.client.create_lease(name="a test's tenant", memory=LIMIT, strict=True)
        return Model(created, self._enter(created))

    def _enter(self, created: dict[str, Any]) -> Forked:
        program = Forked(self._forks, created)
        program.call("enter")
        return program

    def allocate(self, who: int, family: str, size: int) -> None:
        tenant, taken = self.tenants[who], taken_by(family, size)
        if tenant.used + taken <= tenant.limit:
            key, actual = tenant.program.call("allocate", size, family)
            assert actual == taken
            tenant.held[key] = taken
        else:
            with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
                tenant.program.call("allocate", size, family)

    def free(self, who: int, which: int) -> None:
        tenant = self.tenants[who]
        if tenant.held:
            key = list(tenant.held)[which % len(tenant.held)]
            tenant.program.call("free", key)
            del tenant.held[key]

    def resize(self, who: int, limit: int) -> None:
        tenant = self.tenants[who]
        lease_id = tenant.created["lease"]["id"]
        if limit >= tenant.used:
            self._stack.client.patch_lease(lease_id, memory=limit)
            tenant.limit = limit
        else:
            with pytest.raises(InvalidValue) as refused:
                self._stack.client.patch_lease(lease_id, memory=limit)
            assert refused.value.field == "memory"

    def kill(self, who: int) -> None:
        tenant = self.tenants[who]
        lease_id = tenant.created["lease"]["id"]
        tenant.program.kill()
        until(lambda: self._stack.client.lease(lease_id)["processes"] == [], within=1.0)
        assert self._stack.client.lease(lease_id)["parts"][0]["memory_used"] == 0
        until(lambda: tenant.program.pid not in self._stack.books.processes(), within=1.0)
        tenant.held.clear()
        tenant.program = self._enter(tenant.created)

    def check(self) -> None:
        processes = self._stack.books.processes()
        for tenant in self.tenants:
            free, total = tenant.program.call("memory")
            assert (total, total - free) == (tenant.limit, tenant.used)
            assert tenant.program.call("nvml")[0]["memory"] == [[free, total - free, total]] * 2
            part = self._stack.client.lease(tenant.created["lease"]["id"])["parts"][0]
            assert (part["memory"], part["memory_used"]) == (tenant.limit, tenant.used)
            assert processes[tenant.program.pid].used == tenant.used
        assert self._stack.used() == sum(tenant.used for tenant in self.tenants)

    def end(self) -> None:
        for tenant in self.tenants:
            tenant.program.kill()
            self._stack.client.release(tenant.created["lease"]["id"])
        until(lambda: self._stack.used() == 0, within=1.0)
        device = self._stack.device()
        assert (self._stack.client.leases(), device["unmanaged"], device["memory_used"]) == ([], [], 0)


@pytest.fixture
def forks(stack: Stack) -> Iterator[str]:
    """Where `Forked` programs come from."""
    path = str(stack.directory / "forks.sock")
    # Its own lease is none of the tenants': each program that it forks brings the token of another.
    created = stack.client.create_lease(name="where tenants are forked")
    environ = tenant_environment(stack.environ, created=created, socket=stack.client.socket, startup=False)
    process = subprocess.Popen([sys.executable, str(ROOT / "tests" / "stack" / "tenant.py"), path], env=environ)
    until(lambda: os.path.exists(path), within=30)
    stack.client.release(created["lease"]["id"])
    yield path
    process.kill()
    process.wait()


WHO = st.integers(0, 1)
# The simulated driver rounds up to 512 bytes, managed memory to pages of UNIT. The shim counts what was asked, so other sizes agree only to
# within UNIT an allocation until the next reading of NVML brings the difference in; here every figure has to agree at every step.
UNIT = 4096
SIZES = st.one_of(
    st.integers(2 * MIB // UNIT, 3 * GIB // UNIT).map(lambda units: units * UNIT),
    st.sampled_from([2 * MIB, GIB, LIMIT - CONTEXT, LIMIT - CONTEXT + UNIT, LIMIT]),
)
STEPS = st.one_of(
    st.tuples(st.just("allocate"), WHO, st.sampled_from(FAMILIES), SIZES),
    st.tuples(st.just("allocate"), WHO, st.sampled_from(FAMILIES), SIZES),
    st.tuples(st.just("free"), WHO, st.integers(0, 9)),
    st.tuples(st.just("resize"), WHO, st.integers((CONTEXT + MIB) // UNIT, 6 * GIB // UNIT).map(lambda units: units * UNIT)),
    st.tuples(st.just("kill"), WHO),
)


@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink an example takes minutes, and its steps are few
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=5, max_size=15))
def test_ledger_lease_and_driver_agree_at_every_step(stack: Stack, forks: str, steps: list[tuple]) -> None:
    pair = Pair(stack, forks)
    try:
        pair.check()
        for method, *arguments in steps:
            getattr(pair, method)(*arguments)
            pair.check()
    finally:
        pair.end()
