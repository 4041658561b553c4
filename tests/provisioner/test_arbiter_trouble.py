"""A kernel starts, is interrupted and ends in good time whatever the arbiter does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time

import pytest
from jupyter_vgpu_provisioner.local import INTERRUPT_BOUND

from jupyter_vgpu.native import locate
from tests.provisioner.kernels import run

pytestmark = pytest.mark.asyncio


@pytest.fixture
def silent_arbiter(pool, monkeypatch):
    """A socket that accepts everything and answers nothing."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(pool))
    listener.listen()
    yield listener
    listener.close()
    pool.unlink()


async def test_silent_arbiter_costs_the_bound_and_the_kernel_starts_unmanaged(silent_arbiter, manager, monkeypatch, caplog):
    monkeypatch.setattr("jupyter_vgpu_provisioner.local.VgpuProvisioner.lease_timeout", 0.3)
    began = time.monotonic()
    await manager.start_kernel()
    assert time.monotonic() - began < 10
    assert "starts without a GPU lease: the arbiter did not answer within 0.3 s" in caplog.text
    assert await run(manager, "import os; print('VGPU_LEASE' in os.environ, 'LD_PRELOAD' in os.environ)") == "False False"


async def test_arbiter_that_hangs_later_does_not_hold_the_signal(arbiter, manager):
    await manager.start_kernel()
    await run(manager, "1")
    pid = arbiter.pool()["arbiter"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        sent = []
        real = os.killpg

        def killpg(pgid, signum):
            sent.append(time.monotonic())
            real(pgid, signum)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "killpg", killpg)
            began = time.monotonic()
            await manager.interrupt_kernel()
        assert sent[0] - began < INTERRUPT_BOUND + 1
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_lease_comes_before_the_signal(arbiter, manager):
    await manager.start_kernel()
    await run(manager, "1")
    order = []

    class Recording:
        def __init__(self, runtime, *, token=None):
            pass

        async def interrupt(self, lease_id):
            order.append(("lease", lease_id))

        def close(self):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jupyter_vgpu_provisioner.local.AsyncArbiterClient", Recording)
        patch.setattr(os, "killpg", lambda pgid, signum: order.append(("signal", signum)))
        await manager.interrupt_kernel()
    (lease,) = arbiter.leases()
    assert order == [("lease", lease["id"]), ("signal", signal.SIGINT)]


@pytest.mark.parametrize("spec", ["nonsense", "0x16GiB", "2x"])
async def test_unreadable_simulation_is_a_warning(manager, monkeypatch, caplog, spec):
    monkeypatch.setenv("VGPU_SIMULATED", spec)
    await manager.start_kernel()
    assert "VGPU_SIMULATED" in caplog.text and spec in caplog.text
    assert await run(manager, "print(6 * 7)") == "42"


async def test_missing_native_part_is_a_warning(pool, manager, monkeypatch, caplog):
    monkeypatch.setattr(locate, "unavailable_reason", lambda: "no native part for this machine")
    await manager.start_kernel()
    assert "no native part for this machine" in caplog.text
    assert await run(manager, "import os; print('LD_PRELOAD' in os.environ)") == "False"


async def test_error_of_ours_is_no_error_of_the_kernels(arbiter, manager, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("jupyter_vgpu_provisioner.local.tenant_environment", broken)
    await manager.start_kernel()
    assert "a mistake of ours" in caplog.text and "Traceback" in caplog.text
    assert arbiter.leases() == []


async def test_lease_whose_answer_came_too_late_is_found_and_released(arbiter, manager, monkeypatch):
    from jupyter_vgpu.arbiter.client import AsyncArbiterClient

    create = AsyncArbiterClient.create_lease

    async def late(self, **new):
        await create(self, **new)
        await asyncio.Event().wait()

    monkeypatch.setattr(AsyncArbiterClient, "create_lease", late)
    monkeypatch.setattr("jupyter_vgpu_provisioner.local.VgpuProvisioner.lease_timeout", 1.0)
    await manager.start_kernel()
    assert arbiter.leases() == []
