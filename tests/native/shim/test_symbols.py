"""lessons.md, "Symbols": which function a caller gets, by whichever way it asks."""

from __future__ import annotations

import time

import pytest

from tests.native.shim.conftest import MIB

OK, OUT_OF_MEMORY, NOT_FOUND = 0, 2, 500
SUCCESS, SYMBOL_NOT_FOUND, VERSION_NOT_SUFFICIENT = 0, 1, 2
DEFAULT, LEGACY, PER_THREAD = 0, 1, 2


def resolve(tenant, name, version, flags=DEFAULT):
    result, status, file, symbol = tenant.ask("symbol", version, flags, name).split()
    return int(result), int(status), "shim" if "/shim/" in file else "driver" if "/driver/" in file else file, symbol


def test_quota_holds_for_who_fetches_everything_through_cuGetProcAddress_v2(tenants, arbiter):
    tenant = tenants(arbiter, TENANT_LOOKUP="proc")
    assert tenant("init", 0) == OK
    assert tenant("context", 0)[0] == OK
    assert tenant("info") == (OK, 1024 * MIB, 1024 * MIB)
    assert tenant("alloc", 1025 * MIB, 0) == OUT_OF_MEMORY
    assert tenant("alloc", 1024 * MIB, 0) == OK
    assert tenant("free", 0) == OK
    assert arbiter.page.used() == 0


@pytest.mark.parametrize(
    "name,version,flags,symbol",
    [
        ("cuMemAlloc", 2000, DEFAULT, "cuMemAlloc"),
        ("cuMemAlloc", 3020, DEFAULT, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13000, DEFAULT, "cuMemAlloc_v2"),
        ("cuLaunchKernel", 12000, DEFAULT, "cuLaunchKernel"),
        ("cuLaunchKernel", 12000, LEGACY, "cuLaunchKernel"),
        ("cuLaunchKernel", 12000, PER_THREAD, "cuLaunchKernel_ptsz"),
        ("cuMemAllocAsync", 12000, DEFAULT, "cuMemAllocAsync"),
        ("cuMemAllocAsync", 12000, PER_THREAD, "cuMemAllocAsync_ptsz"),
        ("cuGetProcAddress", 11030, DEFAULT, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, DEFAULT, "cuGetProcAddress_v2"),
    ],
)
def test_answer_is_the_hook_of_exactly_the_drivers_pointer(tenant, name, version, flags, symbol):
    assert resolve(tenant, name, version, flags) == (OK, SUCCESS, "shim", symbol)


def test_what_is_not_hooked_is_the_drivers_own_pointer(tenant):
    assert resolve(tenant, "cuDriverGetVersion", 13000) == (OK, SUCCESS, "driver", "cuDriverGetVersion")


def test_symbol_newer_than_the_shim_passes_through_untouched(tenant):
    assert resolve(tenant, "cuFromTheFuture", 13000) == (OK, SUCCESS, "driver", "cuFromTheFuture")


def test_symbol_the_driver_lacks_is_the_drivers_answer(tenant):
    assert resolve(tenant, "cuNoSuchThing", 13000) == (NOT_FOUND, SYMBOL_NOT_FOUND, "-", "-")
    assert resolve(tenant, "cuMemAllocAsync", 10000) == (NOT_FOUND, VERSION_NOT_SUFFICIENT, "-", "-")


def test_exported_symbol_the_driver_lacks_answers_not_found_and_does_not_crash(tenant):
    assert tenant("lacking") == NOT_FOUND


def test_trampoline_keeps_every_kind_of_argument(tenant):
    assert tenant("paramf") == OK
    assert tenant("paramf") == OK


def test_unmanaged_process_gets_the_same_answers(tenants):
    tenant = tenants()
    tenant("init", 0)
    assert resolve(tenant, "cuMemAlloc", 13000)[3] == "cuMemAlloc_v2"


def test_cuInit_reentered_by_the_driver_does_not_hang(tenants, arbiter):
    """The stub comes back by the exported name, which is the shim's, as drivers do through cuGetExportTable."""
    tenant = tenants(arbiter)
    assert tenant("init", 0) == OK
    assert len(arbiter.asked("attach")) == 1


def test_cuInit_costs_less_than_a_second_when_the_arbiter_hangs(tenants, arbiter):
    """A listener that never answers: the process goes on unmanaged."""
    release = []
    arbiter.on_request = lambda op, request: release or time.sleep(3) or release.append(1)
    tenant = tenants(arbiter)
    start = time.monotonic()
    assert tenant("init", 0) == OK
    assert time.monotonic() - start < 1.0
    assert tenant("count") == (OK, 2)
