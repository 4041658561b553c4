"""A lease changes while its program runs: the next call sees it."""

from __future__ import annotations

import pytest

from jupyter_vgpu.pool.model import InvalidValue
from tests.stack.stack import CONTEXT, GIB, MIB, CudaError, Stack


def test_the_next_call_sees_the_new_limit(stack: Stack) -> None:
    tenant = stack.tenant(memory=2 * GIB)
    tenant.enter()
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        tenant.allocate(2 * GIB)
    tenant.patch(memory="6GiB")
    assert (tenant.total(), tenant.memory()) == (6 * GIB, [6 * GIB - CONTEXT, 6 * GIB])
    assert tenant.nvml()[0]["memory"] == [[6 * GIB - CONTEXT, CONTEXT, 6 * GIB]] * 2
    key, _ = tenant.allocate(5 * GIB)
    tenant.free(key)
    tenant.patch(memory=GIB)
    assert tenant.memory() == [GIB - CONTEXT, GIB]
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        tenant.allocate(GIB)


def test_a_limit_below_use_is_refused_with_the_figure_and_changes_nothing(stack: Stack) -> None:
    tenant = stack.tenant(memory=4 * GIB)
    tenant.enter()
    tenant.allocate(2 * GIB)
    with pytest.raises(InvalidValue, match=r"2\.\d+ GiB") as refused:
        tenant.patch(memory="1GiB")
    assert (refused.value.code, refused.value.field) == ("conflict", "memory")
    assert tenant.memory() == [2 * GIB - CONTEXT, 4 * GIB]
    tenant.patch(memory=2 * GIB + CONTEXT)
    assert tenant.memory() == [0, 2 * GIB + CONTEXT], "down to what is used, it is allowed"


def test_a_limit_that_a_context_alone_exceeds_is_refused_once_a_context_was_measured(stack: Stack) -> None:
    tenant = stack.tenant(memory=4 * GIB)
    tenant.enter()
    with pytest.raises(InvalidValue, match="memory") as refused:
        stack.tenant(memory=CONTEXT - MIB)
    assert refused.value.field == "memory"


def test_a_limit_smaller_than_the_context_shows_nothing_free(stack: Stack) -> None:
    """Nobody had a context yet, so nobody could know; the queries succeed, and so does everything that needs no memory."""
    tenant = stack.tenant(memory=100 * MIB)
    tenant.enter()
    assert tenant.memory() == [0, 100 * MIB]
    assert tenant.nvml()[0]["memory"] == [[0, 100 * MIB, 100 * MIB]] * 2
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        tenant.allocate(MIB)


def test_devices_of_a_running_program_cannot_change(stack: Stack) -> None:
    tenant = stack.tenant(memory=4 * GIB)
    one = tenant.patch(device=stack.device(1)["uuid"])
    assert [part["device"] for part in one["parts"]] == [stack.device(1)["uuid"]]
    tenant.init()
    assert tenant.devices() == [stack.device(1)["uuid"]]
    with pytest.raises(InvalidValue) as refused:
        tenant.patch(device=stack.device(0)["uuid"])
    assert (refused.value.code, refused.value.field) == ("conflict", "device")
