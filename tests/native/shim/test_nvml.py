"""What NVML shows a tenant: its devices, its memory, its processes."""

from __future__ import annotations

from tests.native.shim.conftest import MIB

OK, INVALID_ARGUMENT, NOT_FOUND, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 0, 2, 6, 7, 13
GPU = ["GPU-" + "-".join(f"{i:02x}" * n for n in (4, 2, 2, 2, 6)) for i in range(1, 5)]


def test_only_leased_devices_in_the_leases_order(tenants, arbiters):
    arbiter = arbiters(limits=(1 << 30, 1 << 30), uuids=[b"\3" * 16, b"\1" * 16])
    tenant = tenants(arbiter, STUB_DEVICES="4")
    assert tenant("nvml") == OK
    assert tenant.ask("nvml_devices") == f"0 {GPU[2]}=0 {GPU[0]}=1 {INVALID_ARGUMENT}"


def test_order_is_the_leases_whatever_CUDA_VISIBLE_DEVICES_says(tenants, arbiters):
    arbiter = arbiters(limits=(1 << 30, 1 << 30))
    tenant = tenants(arbiter, CUDA_VISIBLE_DEVICES="1")
    tenant("nvml")
    assert tenant.ask("nvml_devices").split()[1:3] == [f"{GPU[0]}=0", f"{GPU[1]}=1"]


def test_device_of_another_lease_is_not_there(tenants, arbiter):
    tenant = tenants(arbiter)
    tenant("nvml")
    assert tenant("nvml_uuid", GPU[0]) == OK
    assert tenant("nvml_uuid", GPU[1]) == NOT_FOUND
    assert tenant("nvml_uuid", "GPU-nonsense") == NOT_FOUND


def test_processes_are_the_tenants_own_with_their_memory_and_no_others(tenants, arbiter, tenant):
    arbiter.page.slot(0).residual = 20 * MIB
    tenant("alloc", 100 * MIB, 0)
    other = tenants(arbiter)
    other("init", 0), other("context", 0), other("alloc", 50 * MIB, 0)
    tenant("nvml")
    assert tenant.ask("nvml_processes", 0, 8) == f"0 2 {tenant.pid}={120 * MIB} {other.pid}={50 * MIB}"


def test_in_a_pid_namespace_of_its_own_a_process_lists_itself_by_its_own_number_and_no_foreign_one(tenants, arbiter, tenant):
    tenant("alloc", 100 * MIB, 0)
    other = tenants(arbiter)
    other("init", 0), other("context", 0), other("alloc", 50 * MIB, 0)
    for slot in range(2):  # the page has the arbiter's numbers, which mean other processes or none to the tenant
        arbiter.page.control.process[slot].pid += 1_000_000
    tenant("nvml")
    assert tenant.ask("nvml_processes", 0, 8) == f"0 1 {tenant.pid}={100 * MIB}"


def test_too_little_room_for_the_processes_says_how_much_is_needed(tenant):
    tenant("alloc", MIB, 0)
    tenant("nvml")
    assert tenant("nvml_processes", 0, 0) == (INSUFFICIENT_SIZE, 1)


def test_processes_of_an_idle_tenant_are_none(tenants, arbiter):
    tenant = tenants(arbiter)
    tenant("nvml")
    assert tenant("nvml_processes", 0, 8) == (OK, 0)


def test_process_that_only_asks_attaches_too(tenants, arbiter):
    tenant = tenants(arbiter)
    tenant("nvml")
    assert len(arbiter.asked("attach")) == 1
    assert tenant("nvml_memory", 0)[:2] == (OK, 1024 * MIB)
