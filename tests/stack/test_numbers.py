"""Every way to ask how much memory there is gives the same answer, and the answer is the driver's."""

from __future__ import annotations

import pytest

from tests.stack.stack import CONTEXT, DEVICE, GIB, MIB, CudaError, Stack

LIMIT = 4 * GIB
FAMILIES = ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemCreate")


def test_every_query_agrees_with_the_books(stack: Stack) -> None:
    tenant = stack.tenant(memory=LIMIT)
    tenant.enter()
    tenant.allocate(GIB)
    used = GIB + CONTEXT
    assert tenant.memory() == [LIMIT - used, LIMIT]
    assert tenant.total() == LIMIT
    first, second = tenant.nvml()
    assert first["memory"] == [[LIMIT - used, used, LIMIT]] * 2
    assert first["processes"] == {str(tenant.pid): used}
    assert second["memory"] == [[LIMIT, 0, LIMIT]] * 2
    assert second["processes"] == {}
    lease = tenant.lease
    assert [(part["memory_used"], part["memory"]) for part in lease["parts"]] == [(used, LIMIT), (0, LIMIT)]
    assert lease["processes"] == [{"pid": tenant.pid, "name": lease["processes"][0]["name"], "memory_used": used}]
    assert stack.used() == used
    assert stack.books.processes()[tenant.pid].used == used


def test_the_pool_shows_the_drivers_figure_and_what_is_no_tenants(stack: Stack) -> None:
    tenant, stranger = stack.tenant(memory=LIMIT), stack.unmanaged()
    tenant.enter()
    tenant.allocate(GIB)
    stranger.enter()
    stranger.allocate(2 * GIB)
    assert stranger.total() == DEVICE, "who is no tenant sees the device itself"
    stack.tenant().enter()  # makes the arbiter read the devices anew
    device = stack.device()
    assert device["memory_used"] == stack.used()
    assert device["memory_unmanaged"] == 2 * GIB + CONTEXT
    assert [process["pid"] for process in device["unmanaged"]] == [stranger.pid]
    assert tenant.memory() == [LIMIT - GIB - CONTEXT, LIMIT], "a neighbour's memory is not the tenant's affair"


def test_a_query_before_the_first_context_shows_the_whole_limit(stack: Stack) -> None:
    tenant = stack.tenant(memory=LIMIT)
    tenant.init()
    assert tenant.total() == LIMIT
    assert tenant.nvml()[0]["memory"][0] == [LIMIT, 0, LIMIT]
    assert stack.used() == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_quota_holds_for_each_family_and_is_back_after_free(stack: Stack, family: str) -> None:
    tenant = stack.tenant(memory=LIMIT)
    tenant.enter()
    before = tenant.memory()[0]
    key, taken = tenant.allocate(3 * GIB, family)
    assert tenant.memory()[0] == before - taken
    assert stack.used() == taken + CONTEXT
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        tenant.allocate(GIB, family)
    assert tenant.memory()[0] == before - taken, "a denied allocation takes nothing"
    assert stack.used() == taken + CONTEXT
    tenant.free(key)
    assert tenant.memory()[0] == before
    tenant.free(tenant.allocate(3 * GIB, family)[0])


def test_families_share_one_quota(stack: Stack) -> None:
    tenant = stack.tenant(memory=LIMIT)
    tenant.enter()
    keys = [tenant.allocate(700 * MIB, family)[0] for family in FAMILIES]
    for family in FAMILIES:
        with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
            tenant.allocate(700 * MIB, family)
    for key in keys:
        tenant.free(key)
    tenant.allocate(3 * GIB)


def test_the_last_byte_can_be_had_and_one_more_cannot(stack: Stack) -> None:
    tenant = stack.tenant(memory=LIMIT)
    tenant.enter()
    free, _ = tenant.memory()
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        tenant.allocate(free + 1)
    tenant.allocate(free)
    assert tenant.memory() == [0, LIMIT]
    assert stack.used() == LIMIT
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        tenant.allocate(1)


def test_processes_of_a_tenant_share_its_quota_and_see_each_other(stack: Stack) -> None:
    first = stack.tenant(memory=LIMIT)
    second = stack.join(first.created)
    for process in (first, second):
        process.enter()
    first.allocate(2 * GIB)
    assert second.memory() == [LIMIT - 2 * GIB - 2 * CONTEXT, LIMIT]
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        second.allocate(2 * GIB)
    assert second.nvml()[0]["processes"] == {str(first.pid): 2 * GIB + CONTEXT, str(second.pid): CONTEXT}
    first.kill()
    second.allocate(3 * GIB)
    assert second.nvml()[0]["processes"] == {str(second.pid): 3 * GIB + CONTEXT}


def test_a_tenant_sees_nobody_else(stack: Stack) -> None:
    tenant, neighbour, stranger = stack.tenant(memory=LIMIT), stack.tenant(memory=LIMIT), stack.unmanaged()
    for program in (tenant, neighbour, stranger):
        program.enter()
    assert tenant.nvml()[0]["processes"] == {str(tenant.pid): CONTEXT}


def test_an_overrun_hits_the_one_who_overran(stack: Stack) -> None:
    greedy, neighbour = stack.tenant(memory=LIMIT), stack.tenant(memory=LIMIT)
    for program in (greedy, neighbour):
        program.enter()
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        greedy.allocate(LIMIT)
    neighbour.allocate(3 * GIB)
    greedy.allocate(3 * GIB)


def test_a_full_device_is_out_of_memory_for_the_asker_alone(stack: Stack) -> None:
    """Limits may add up to more than the device; what then is short is the device's word."""
    first, second = stack.tenant(memory=12 * GIB), stack.tenant(memory=12 * GIB)
    for program in (first, second):
        program.enter()
    first.allocate(11 * GIB)
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        second.allocate(11 * GIB)
    assert second.memory() == [12 * GIB - CONTEXT, 12 * GIB], "what the driver refused is not charged"
    second.allocate(4 * GIB)


def test_a_notebook_alone_without_policy_sees_the_device_itself(stack: Stack) -> None:
    alone = stack.join(stack.client.create_lease(name="alone"))
    bare = stack.unmanaged()
    seen = []
    for program in (alone, bare):
        program.enter()
        seen.append((program.devices(), program.total(), program.memory()[1]))
        program.kill()
    assert seen[0] == seen[1]
