"""How a process becomes a tenant, stays one over an arbiter's restart, and what it is without one."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.native.shim.conftest import MIB
from tests.waiting import until

OK, OUT_OF_MEMORY, NO_DEVICE = 0, 2, 100


def test_loading_alone_attaches_nothing_and_starts_no_thread(tenants, arbiter):
    tenant = tenants(arbiter)
    assert os.listdir(f"/proc/{tenant.pid}/task") == [str(tenant.pid)]
    assert not arbiter.asked("attach")


def test_first_cuInit_attaches_once(tenants, arbiter):
    tenant = tenants(arbiter)
    for _ in range(3):
        assert tenant("init", 0) == OK
    assert len(arbiter.asked("attach")) == 1
    assert arbiter.page.control.process[0].pid == tenant.pid


def test_drivers_error_of_cuInit_stands(tenants, arbiter):
    tenant = tenants(arbiter)
    assert tenant("init", 1) == 1
    assert tenant("init", 0) == OK
    assert tenant("count") == (OK, 1)


def test_helper_thread_is_named_and_takes_no_signals(tenant):
    tasks = {t for t in os.listdir(f"/proc/{tenant.pid}/task")} - {str(tenant.pid)}
    (helper,) = tasks
    until(lambda: open(f"/proc/{tenant.pid}/task/{helper}/comm").read() == "vgpu\n")
    status = open(f"/proc/{tenant.pid}/task/{helper}/status").read()
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    assert all(blocked >> (s - 1) & 1 for s in (signal.SIGINT, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1))


def test_descriptors_are_high_and_close_on_exec(tenant):
    for name in os.listdir(f"/proc/{tenant.pid}/fd"):
        if int(name) > 2 and "memfd" in os.readlink(f"/proc/{tenant.pid}/fd/{name}"):
            assert int(name) >= 128
            flags = open(f"/proc/{tenant.pid}/fdinfo/{name}").read().split("flags:")[1].split()[0]
            assert int(flags, 8) & os.O_CLOEXEC
            break
    else:
        pytest.fail("the control page's descriptor is not kept")


@pytest.mark.parametrize("case", ["no arbiter", "no token", "refused", "wrong token"])
def test_unmanaged_process_behaves_as_with_the_plain_driver(tenants, arbiter, built, case):
    env = {"CUDA_VISIBLE_DEVICES": "GPU-02020202"}
    if case == "no arbiter":
        env["VGPU_SHIM_SOCKET"] = arbiter.path + "-nobody"
    elif case == "no token":
        env["VGPU_TOKEN"] = ""
    elif case == "refused":
        arbiter.refuse = 4
    else:
        env["VGPU_TOKEN"] = "x" * 64
    tenant = tenants(arbiter, **env)
    assert tenant("init", 0) == OK
    assert tenant("count") == (OK, 1)
    assert tenant("uuid", 0) == (OK, 2)
    assert tenant("context", 0)[0] == OK
    assert tenant("alloc", 8 << 30, 0) == OK
    assert tenant("info") == (OK, 8 << 30, 16 << 30)
    assert tenant("nvml") == OK
    assert tenant.ask("nvml_devices").split()[0] == "0"
    assert tenant("free", 0) == OK
    assert tenant.end() == ""


def test_why_it_is_unmanaged_is_said_only_when_asked(tenants, arbiter):
    tenant = tenants(arbiter, VGPU_SHIM_SOCKET=arbiter.path + "-nobody", VGPU_LOG="1")
    tenant("init", 0)
    assert "cannot reach the arbiter" in tenant.end()


def test_process_with_a_cleaned_environment_is_unmanaged_and_leaves_the_books_alone(tenants, arbiter, tenant):
    tenant("alloc", MIB, 0)
    stranger = tenants()
    assert (stranger("init", 0), stranger("context", 0)[0]) == (OK, OK)
    assert stranger("info") == (OK, 16 << 30, 16 << 30)
    assert arbiter.page.used() == MIB


# -- devices


def test_tenant_sees_its_leased_devices_in_the_leases_order(tenants, arbiters):
    arbiter = arbiters(limits=(1 << 30, 2 << 30), uuids=[b"\3" * 16, b"\1" * 16])
    tenant = tenants(arbiter, STUB_DEVICES="4")
    assert tenant("init", 0) == OK
    assert tenant("count") == (OK, 2)
    assert [tenant("uuid", i) for i in range(2)] == [(OK, 3), (OK, 1)]
    assert [tenant("total", i) for i in range(2)] == [(OK, 1 << 30), (OK, 2 << 30)]


@pytest.mark.parametrize(
    "own,seen",
    [
        ("0", [3]),
        ("1,0", [1, 3]),
        (" 1", [1]),
        ("GPU-0101", [1]),
        ("gpu-03030303-0303-0303-0303-030303030303,0", [3]),
        ("0,7,1", [3]),
        ("0,nonsense", [3]),
        ("-1", []),
        ("", []),
        ("GPU-02020202-0202-0202-0202-020202020202", []),
    ],
)
def test_the_users_own_value_indexes_into_the_view_and_is_there_afterwards(tenants, arbiters, own, seen):
    arbiter = arbiters(limits=(1 << 30, 1 << 30), uuids=[b"\3" * 16, b"\1" * 16])
    tenant = tenants(arbiter, STUB_DEVICES="4", CUDA_VISIBLE_DEVICES=own)
    assert tenant("init", 0) == (OK if seen else NO_DEVICE)
    if seen:
        assert tenant("count") == (OK, len(seen))
    assert [tenant("uuid", i)[1] for i in range(len(seen))] == seen
    assert tenant.ask("environment", "CUDA_VISIBLE_DEVICES") == own


def test_without_an_own_value_none_is_left_behind(tenant):
    assert tenant.ask("environment", "CUDA_VISIBLE_DEVICES") == "(unset)"


def test_books_are_kept_by_device_not_by_ordinal(tenants, arbiters):
    arbiter = arbiters(limits=(1 << 30, 1 << 30))
    tenant = tenants(arbiter, CUDA_VISIBLE_DEVICES="1")
    tenant("init", 0), tenant("context", 0)
    assert tenant("alloc", MIB, 0) == OK
    assert (arbiter.page.used(0), arbiter.page.used(1)) == (0, MIB)


# -- admission


def test_cuInit_and_queries_never_wait_but_the_first_context_does(tenants, arbiter):
    arbiter.admit = "hold"
    tenant = tenants(arbiter)
    start = time.monotonic()
    assert tenant("init", 0) == OK
    assert tenant("count") == (OK, 1)
    assert tenant("total", 0) == (OK, 1 << 30)
    assert time.monotonic() - start < 1
    tenant.send("context", 0)
    until(lambda: arbiter.asked("admit"))
    arbiter.interrupt()
    assert tenant.text() == f"{OUT_OF_MEMORY} 0"


def test_after_an_interrupt_the_next_call_waits_anew(tenants, arbiter):
    arbiter.admit = "hold"
    tenant = tenants(arbiter)
    tenant("init", 0)
    tenant.send("retain", 0)
    until(lambda: arbiter.asked("admit"))
    start = time.monotonic()
    arbiter.interrupt()
    assert tenant.text() == str(OUT_OF_MEMORY)
    assert time.monotonic() - start < 1
    arbiter.admit = "ok"
    assert tenant("retain", 0) == OK
    assert len(arbiter.asked("admit")) == 2


def test_denied_admission_is_out_of_memory(tenants, arbiter):
    arbiter.admit = "deny"
    tenant = tenants(arbiter)
    tenant("init", 0)
    assert tenant("context", 0) == (OUT_OF_MEMORY, 0)


def test_admission_and_measure_are_asked_once_per_device(tenants, arbiters):
    arbiter = arbiters(limits=(1 << 30, 1 << 30))
    tenant = tenants(arbiter)
    tenant("init", 0)
    for device in (0, 1, 0, 1):
        assert tenant("context", device)[0] == OK
    assert [r[1] for r in arbiter.asked("admit")] == [0, 1]
    assert [r[1] for r in arbiter.asked("measure")] == [0, 1]


# -- the arbiter goes and comes


def test_tenant_joins_a_restarted_arbiter_with_its_slot_and_page(tenant, arbiter):
    assert tenant("alloc", 100 * MIB, 0) == OK
    arbiter.stop()
    assert tenant("alloc", 100 * MIB, 1) == OK
    arbiter.start()
    until(lambda: len(arbiter.asked("attach")) == 2)
    again = arbiter.asked("attach")[1]
    assert again[3] == 1 and again[4] == 0 and len(again[5]) == 1
    assert arbiter.page.used() == 200 * MIB
    assert tenant("alloc", 1000 * MIB, 2) == OUT_OF_MEMORY
    assert arbiter.asked("reserve")


def test_a_wait_outlives_the_arbiter_that_it_asked(tenants, arbiter):
    arbiter.admit = "hold"
    tenant = tenants(arbiter)
    tenant("init", 0)
    tenant.send("retain", 0)
    until(lambda: arbiter.asked("admit"))
    arbiter.stop()
    arbiter.admit = "ok"
    arbiter.start()
    assert tenant.text() == str(OK)


def test_without_an_arbiter_the_limit_holds_and_the_wait_is_bounded(tenant, arbiter):
    arbiter.stop()
    start = time.monotonic()
    assert tenant("alloc", 1025 * MIB, 0) == OUT_OF_MEMORY
    assert time.monotonic() - start < 8
    assert tenant("alloc", 1024 * MIB, 0) == OK
    arbiter.start()


# -- forks


def test_forked_child_is_another_process_of_the_tenant(tenant, arbiter):
    assert tenant("alloc", 100 * MIB, 0) == OK
    child = tenant("fork")
    assert arbiter.page.control.process[1].pid == 0
    assert tenant("init", 0) == OK
    until(lambda: arbiter.page.control.process[1].pid == child)
    assert tenant("info")[0] == OK  # the stub driver's context came along
    assert tenant("alloc", 50 * MIB, 1) == OK
    assert [arbiter.page.slot(i).used for i in (0, 1)] == [100 * MIB, 50 * MIB]
    assert tenant("alloc", 900 * MIB, 2) == OUT_OF_MEMORY
    assert tenant("exit", 0) == 0  # the parent's line: how its child ended
    until(lambda: arbiter.page.used() == 100 * MIB)


def test_child_that_never_initialises_changes_nothing(tenant, arbiter):
    tenant("alloc", MIB, 0)
    tenant("fork")
    tenant("free", 0)
    tenant.send("exit", 0)
    assert tenant.text() == "0"
    assert arbiter.page.used() == MIB
    assert tenant("free", 0) == OK
    assert arbiter.page.used() == 0


def test_childs_end_does_not_disturb_the_parents_connection(tenant, arbiter):
    tenant("fork")
    tenant("init", 0)
    tenant.send("exit", 0)
    assert tenant.text() == "0"
    assert tenant("alloc", 2000 * MIB, 0) == OUT_OF_MEMORY
    assert len(arbiter.asked("attach")) == 2


def test_killed_tenant_gives_everything_back(tenants, arbiter, tenant):
    other = tenants(arbiter)
    other("init", 0), other("context", 0)
    assert tenant("alloc", 1000 * MIB, 0) == OK
    assert other("alloc", 100 * MIB, 0) == OUT_OF_MEMORY
    os.kill(tenant.pid, signal.SIGKILL)
    until(lambda: arbiter.page.used() == 0, within=1)
    assert other("alloc", 1000 * MIB, 0) == OK
