"""The memory limit: what is charged, what is denied, what is shown, and what comes back."""

from __future__ import annotations

import pytest

from tests.native.shim.conftest import MIB
from tests.waiting import until

OK, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT = 0, 1, 2, 201
DEVICE, HOST, HOST_NUMA = 1, 2, 3


def test_allocation_is_charged_and_free_gives_back(tenant, arbiter):
    assert tenant("alloc", 100 * MIB, 0) == OK
    assert arbiter.page.used() == 100 * MIB
    assert tenant("free", 0) == OK
    assert arbiter.page.used() == 0


def test_denied_allocation_is_exactly_out_of_memory_and_the_process_works_on(tenant, arbiter):
    assert tenant("alloc", 1000 * MIB, 0) == OK
    assert tenant("alloc", 100 * MIB, 1) == OUT_OF_MEMORY
    assert arbiter.page.used() == 1000 * MIB
    assert [r[2] for r in arbiter.asked("reserve")] == [100 * MIB]
    assert tenant("free", 0) == OK
    assert tenant("alloc", 100 * MIB, 1) == OK


@pytest.mark.parametrize("command", ["alloc", "managed", "async", "async_ptsz", "pool"])
def test_every_way_of_allocating_holds_the_limit(tenant, arbiter, command):
    assert tenant(command, 1025 * MIB, 0) == OUT_OF_MEMORY
    assert tenant(command, 1024 * MIB, 0) == OK
    assert tenant(command, 1, 1) == OUT_OF_MEMORY
    assert tenant("free_async" if "async" in command or command == "pool" else "free", 0) == OK
    assert arbiter.page.used() == 0


def test_pitched_allocation_is_charged_what_the_driver_made_of_it(tenant, arbiter):
    result, pitch = tenant("pitch", 100, 1000, 0)
    assert (result, pitch) == (OK, 256)
    assert arbiter.page.used() == 256 * 1000
    assert tenant("free", 0) == OK
    assert arbiter.page.used() == 0


@pytest.mark.parametrize("width,height", [(2**64 - 1, 2), (2**63, 2**63), (2**33, 2**33)])
def test_pitched_allocation_that_overflows_is_the_drivers_to_refuse(tenant, arbiter, width, height):
    assert tenant("pitch", width, height, 0)[0] != OK
    assert arbiter.page.used() == 0


@pytest.mark.parametrize("bytes_", [2**64 - 1, 2**63, 1025 * MIB])
def test_absurd_size_is_denied_without_a_trace_in_the_books(tenant, arbiter, bytes_):
    assert tenant("alloc", bytes_, 0) == OUT_OF_MEMORY
    assert arbiter.page.used() == 0
    assert tenant("info") == (OK, 1024 * MIB, 1024 * MIB)


def test_unknown_pointer_goes_to_the_driver_unchanged(tenant, arbiter):
    assert tenant("alloc", MIB, 0) == OK
    assert tenant("free_unknown", 12345) == INVALID_VALUE
    assert arbiter.page.used() == MIB


def test_double_free_gives_back_once(tenant, arbiter):
    assert tenant("alloc", MIB, 0) == OK
    assert tenant("alloc", MIB, 1) == OK
    assert tenant("free", 0) == OK
    assert tenant("free", 0) == INVALID_VALUE
    assert arbiter.page.used() == MIB


def test_null_and_zero_are_the_drivers_to_refuse(tenant, arbiter):
    assert tenant("alloc_null", MIB) == INVALID_VALUE
    assert tenant("alloc", 0, 0) == INVALID_VALUE
    assert arbiter.page.used() == 0 and not arbiter.asked("reserve")


def test_without_a_context_the_drivers_error_stands(tenants, arbiter):
    started = tenants(arbiter)
    assert started("init", 0) == OK
    assert started("alloc", MIB, 0) == INVALID_CONTEXT
    assert arbiter.page.used() == 0


def test_physical_allocation_without_context_is_charged_to_its_locations_device(tenants, arbiters):
    arbiter = arbiters(limits=(1024 * MIB, 512 * MIB))
    started = tenants(arbiter)
    assert started("init", 0) == OK
    assert started("create", 100 * MIB, DEVICE, 1)[0] == OK
    assert (arbiter.page.used(0), arbiter.page.used(1)) == (0, 100 * MIB)
    assert started("create", 500 * MIB, DEVICE, 1)[0] == OUT_OF_MEMORY


@pytest.mark.parametrize("location", [HOST, HOST_NUMA])
def test_physical_allocation_on_the_host_is_not_charged_and_does_not_crash(tenants, arbiter, location):
    started = tenants(arbiter)
    assert started("init", 0) == OK
    result, handle = started("create", 4096 * MIB, location, 0)
    assert result == OK and arbiter.page.used() == 0
    assert started("release", handle) == OK


def test_physical_allocation_on_an_unknown_device_is_the_drivers_to_refuse(tenant, arbiter):
    assert tenant("create", MIB, DEVICE, 77)[0] == 101
    assert tenant("create", MIB, DEVICE, 2**31 - 1)[0] == 101
    assert arbiter.page.used() == 0


@pytest.mark.parametrize("order", ["release first", "unmap first"])
def test_physical_memory_comes_back_with_the_last_of_release_and_unmap(tenant, arbiter, order):
    _, handle = tenant("create", 2 * MIB, DEVICE, 0)
    assert tenant("map", 1 << 40, 2 * MIB, handle) == OK
    steps = [("release", handle), ("unmap", 1 << 40, 2 * MIB)]
    first, second = steps if order == "release first" else reversed(steps)
    assert tenant(*first) == OK
    assert arbiter.page.used() == 2 * MIB
    assert tenant(*second) == OK
    assert arbiter.page.used() == 0


def test_one_unmap_ends_all_mappings_in_its_range(tenant, arbiter):
    handles = [tenant("create", 2 * MIB, DEVICE, 0)[1] for _ in range(100)]
    for i, handle in enumerate(handles):
        assert tenant("map", (1 << 40) + i * 2 * MIB, 2 * MIB, handle) == OK
        assert tenant("release", handle) == OK
    assert arbiter.page.used() == 200 * MIB
    assert tenant("unmap", 1 << 40, 100 * MIB) == OK
    assert arbiter.page.used() == 100 * MIB
    assert tenant("unmap", (1 << 40) + 100 * MIB, 100 * MIB) == OK
    assert arbiter.page.used() == 0


def test_destroyed_context_gives_back_its_memory_and_no_other(tenants, arbiter):
    started = tenants(arbiter)
    started("init", 0)
    _, first = started("context", 0)
    assert started("alloc", 100 * MIB, 0) == OK
    started("context", 0)
    assert started("alloc", 10 * MIB, 1) == OK
    assert started("async", 5 * MIB, 2) == OK
    assert started("destroy", first) == OK
    assert arbiter.page.used() == 15 * MIB


def test_primary_context_gives_back_with_its_last_release(tenants, arbiter):
    started = tenants(arbiter)
    started("init", 0)
    assert (started("retain", 0), started("retain", 0)) == (OK, OK)
    assert started("alloc", 100 * MIB, 0) == OK
    assert started("unretain", 0) == OK
    assert arbiter.page.used() == 100 * MIB
    assert started("unretain", 0) == OK
    assert arbiter.page.used() == 0


def test_primary_context_reset_gives_back(tenants, arbiter):
    started = tenants(arbiter)
    started("init", 0)
    assert started("retain", 0) == OK
    assert started("alloc", 100 * MIB, 0) == OK
    assert started("reset", 0) == OK
    assert arbiter.page.used() == 0


def test_limit_smaller_than_the_context_shows_nothing_free(tenants, arbiters):
    arbiter = arbiters(limits=(100 * MIB,))
    arbiter.residual = 620 * MIB
    started = tenants(arbiter)
    started("init", 0)
    assert started("context", 0)[0] == OK
    assert [r[1] for r in arbiter.asked("measure")] == [0]
    assert started("info") == (OK, 0, 100 * MIB)
    assert started("alloc", 1, 0) == OUT_OF_MEMORY


def test_all_queries_agree_at_one_instant(tenant, arbiter):
    arbiter.page.slot(0).residual = 24 * MIB
    assert tenant("alloc", 500 * MIB, 0) == OK
    assert tenant("info") == (OK, 500 * MIB, 1024 * MIB)
    assert tenant("total", 0) == (OK, 1024 * MIB)
    assert tenant("nvml") == OK
    shown = (OK, 1024 * MIB, 524 * MIB, 500 * MIB)
    assert tenant("nvml_memory", 0) == shown + shown


def test_limit_of_the_whole_device_shows_what_the_driver_shows(tenants, arbiters, built):
    arbiter = arbiters(limits=(16 << 30,))
    started, stock = tenants(arbiter, STUB_FOREIGN="1000"), tenants(STUB_FOREIGN="1000", LD_PRELOAD="", LD_LIBRARY_PATH=str(built.driver))
    for t in (started, stock):
        assert (t("init", 0), t("context", 0)[0], t("nvml")) == (OK, OK, OK)
        assert t("alloc", MIB, 0) == OK
    for query in (("info",), ("total", 0), ("nvml_memory", 0)):
        assert started(*query) == stock(*query)


def test_resize_takes_effect_at_the_next_call(tenant, arbiter):
    assert tenant("alloc", 600 * MIB, 0) == OK
    arbiter.page.control.device[0].memory_limit = 500 * MIB
    assert tenant("info") == (OK, 0, 500 * MIB)
    assert tenant("alloc", 1, 1) == OUT_OF_MEMORY
    arbiter.page.control.device[0].memory_limit = 2048 * MIB
    assert tenant("info") == (OK, 1448 * MIB, 2048 * MIB)
    assert tenant("alloc", 1000 * MIB, 1) == OK


def test_granted_bytes_move_from_the_arbiters_word_to_the_own(tenant, arbiter):
    arbiter.reserve = "always"
    assert tenant("alloc", 2000 * MIB, 0) == OK
    until(lambda: arbiter.asked("commit"))
    until(lambda: arbiter.page.slot(0).granted == 0)
    assert arbiter.page.used() == 2000 * MIB


def test_short_driver_is_retried_once_after_the_arbiter_made_room(tenants, arbiters):
    arbiter = arbiters(limits=(16 << 30,))
    started = tenants(arbiter, STUB_FOREIGN=str(16 << 30))
    started("init", 0), started("context", 0)
    assert started("alloc", 100 * MIB, 0) == OUT_OF_MEMORY
    assert [(r[2], r[3]) for r in arbiter.asked("reserve")] == [(100 * MIB, 1)]
    until(lambda: arbiter.asked("commit"))
    until(lambda: arbiter.page.bytes() == 0)


def test_interrupt_ends_the_wait_for_memory_and_a_late_grant_is_returned(tenant, arbiter):
    arbiter.reserve = "hold"
    held = []
    arbiter.on_request = lambda op, request: held.append(request) if op == "reserve" else None
    tenant.send("alloc", 2000 * MIB, 0)
    until(lambda: held)
    arbiter.interrupt()
    assert tenant.text() == str(OUT_OF_MEMORY)
    arbiter.page.slot(0).granted += 2000 * MIB
    connection = next(iter(arbiter._clients.values()))[0]
    arbiter._reply(connection, held[0], 0)
    until(lambda: arbiter.page.slot(0).granted == 0)
    assert arbiter.page.used() == 0


def test_launches_are_counted_in_the_own_slot(tenant, arbiter):
    assert tenant("launch", 1000) == OK
    assert arbiter.page.slot(0).launches == 1000
