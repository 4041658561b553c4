"""Two arbiters that see the same devices: one has them, the other says who."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_vgpu.arbiter.client import ArbiterUnavailable
from jupyter_vgpu.arbiter.processes import user_name
from tests.stack.stack import CONTEXT, DEVICE, GIB, Stack
from tests.waiting import until


@pytest.fixture
def second(stack: Stack) -> Iterator[Stack]:
    """Another arbiter, in a directory of its own, over the devices of `stack`."""
    directory = Path(tempfile.mkdtemp(prefix="vgpu-s-"))
    other = Stack(directory)
    other.environ["VGPU_SIMGPU_SOCKET"] = stack.device_socket
    try:
        yield other.start()
    finally:
        other.close()
        shutil.rmtree(directory)


def test_the_second_says_who_manages_and_lends_nothing(stack: Stack, second: Stack) -> None:
    pool = second.client.pool()
    holder = f"pid {stack.arbiter_pid} of {user_name(os.getuid())}"
    assert [device["managed_by"] for device in pool["devices"]] == [holder] * 2
    assert holder in pool["message"]
    with pytest.raises(ArbiterUnavailable, match="managed by another arbiter"):
        second.client.create_lease(name="n")
    tenant = stack.tenant(memory=4 * GIB)
    tenant.enter()
    assert tenant.memory() == [4 * GIB - CONTEXT, 4 * GIB], "the first is not disturbed"


def test_what_the_other_arbiters_tenants_use_is_shown_and_not_called_unmanaged(stack: Stack, second: Stack) -> None:
    tenant = stack.tenant()
    tenant.enter()
    device = until(lambda: (found := second.device())["memory_used"] == CONTEXT and found)
    assert device["unmanaged"] == []


def test_the_second_takes_over_after_the_firsts_death(stack: Stack, second: Stack) -> None:
    survivor = stack.tenant(memory=4 * GIB)
    survivor.enter()
    stack.kill_arbiter()
    until(lambda: all(device["managed_by"] is None for device in second.client.pool()["devices"]), within=3.0)
    tenant = second.tenant(memory=2 * GIB)
    tenant.enter()
    assert tenant.memory() == [2 * GIB - CONTEXT, 2 * GIB]
    assert [process["pid"] for process in second.device()["unmanaged"]] == [survivor.pid]
    assert second.device()["memory_total"] == DEVICE
