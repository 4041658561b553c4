"""kill -9, of a tenant and of the arbiter: nothing is lost, nothing stays."""

from __future__ import annotations

import time

import pytest

from tests.stack.stack import CONTEXT, DEVICE, GIB, CudaError, Stack
from tests.waiting import until


def test_a_killed_tenants_memory_and_lease_are_back_within_a_second(stack: Stack) -> None:
    # The holder is this process, so the lease stays; the quota is what has to come back.
    tenant, other = stack.tenant(memory=12 * GIB), stack.tenant(memory=12 * GIB)
    for program in (tenant, other):
        program.enter()
    tenant.allocate(11 * GIB)
    tenant.kill()
    killed = time.monotonic()
    until(lambda: tenant.lease["parts"][0]["memory_used"] == 0 and stack.used() == CONTEXT, within=1.0)
    other.allocate(11 * GIB)
    assert time.monotonic() - killed < 1.0
    again = stack.join(tenant.created)
    again.enter()
    assert again.memory() == [12 * GIB - CONTEXT, 12 * GIB]


def test_a_dead_tenant_is_never_shown_as_unmanaged(stack: Stack) -> None:
    """Each look right after a death: neither the reading from before it nor a driver that is still cleaning up may speak."""
    for _ in range(5):
        tenant = stack.tenant()
        tenant.enter()
        tenant.allocate(GIB)
        stack.client.pool()
        tenant.kill()
        device = stack.device()
        assert (device["unmanaged"], device["memory_unmanaged"]) == ([], 0)
    assert until(lambda: stack.device()["memory_used"] == 0, within=1.0)


def test_a_dead_stranger_is_not_shown_either(stack: Stack) -> None:
    stranger = stack.unmanaged()
    stranger.enter()
    until(lambda: stack.device()["unmanaged"])
    stranger.kill()
    assert stack.device()["unmanaged"] == []


def test_after_the_arbiters_death_the_quota_holds_and_its_successor_takes_everything_back(stack: Stack) -> None:
    tenant, neighbour = stack.tenant(memory=4 * GIB), stack.tenant(memory=2 * GIB)
    for program in (tenant, neighbour):
        program.enter()
    tenant.allocate(GIB)
    before = [tenant.lease, neighbour.lease]
    stack.kill_arbiter()
    # Nobody is there to ask: what fits is had at once, what does not is out of memory after a bounded wait.
    key, _ = tenant.allocate(GIB)
    tenant.free(key)
    assert tenant.memory() == [3 * GIB - CONTEXT, 4 * GIB]
    tenant.send("allocate", 3 * GIB)
    assert tenant.answered(within=20)
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        tenant.receive()
    tenant.allocate(GIB)

    stack.start()
    until(lambda: all(lease["processes"] for lease in stack.client.leases()), what="the leases' return")
    after = tenant.lease
    assert after["parts"][0]["memory_used"] == 2 * GIB + CONTEXT
    assert [after[key] for key in ("id", "created", "name", "owner")] == [before[0][key] for key in ("id", "created", "name", "owner")]
    assert neighbour.lease["parts"] == before[1]["parts"]
    assert stack.device()["unmanaged"] == []
    # The shims speak with the new one.
    until(lambda: tenant.patch(memory="8GiB")["parts"][0]["memory"] == 8 * GIB)
    assert tenant.memory() == [6 * GIB - CONTEXT, 8 * GIB]
    tenant.allocate(5 * GIB)
    tenant.kill()
    until(lambda: tenant.lease["parts"][0]["memory_used"] == 0, within=1.0)


def test_a_tenant_that_died_while_no_arbiter_ran_holds_nothing_afterwards(stack: Stack) -> None:
    tenant, neighbour = stack.tenant(), stack.tenant()
    for program in (tenant, neighbour):
        program.enter()
    stack.kill_arbiter()
    tenant.kill()
    stack.start()
    assert tenant.lease["parts"][0]["memory_used"] == 0
    assert tenant.lease["processes"] == []
    until(lambda: neighbour.lease["parts"][0]["memory_used"] == CONTEXT)


def test_a_program_that_starts_while_no_arbiter_runs_is_unmanaged_and_works(stack: Stack) -> None:
    """A kernel never fails because of us."""
    tenant = stack.tenant(memory=2 * GIB)
    stack.kill_arbiter()
    tenant.enter()
    assert tenant.memory() == [DEVICE - CONTEXT, DEVICE]


def test_a_released_leases_program_keeps_its_limit_and_ends_in_peace(stack: Stack) -> None:
    tenant = stack.tenant(memory=2 * GIB)
    tenant.enter()
    stack.client.release(tenant.lease_id)
    tenant.allocate(GIB)
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        tenant.allocate(GIB)
    assert [process["pid"] for process in stack.device()["unmanaged"]] == [tenant.pid], "who has no lease is no tenant"
