"""When slots, memory and leases are free again, and what survives the arbiter's own death."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest

from jupyter_vgpu.arbiter.client import ArbiterClient
from jupyter_vgpu.native import protocol
from tests.arbiter.conftest import GIB
from tests.waiting import until

HOLDER = """
import json, os, sys
from jupyter_vgpu.arbiter.client import ArbiterClient
print(json.dumps(ArbiterClient.find(os.environ).create_lease(name="held", memory="4GiB")), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(arbiter):
    """A process that asked for a lease and lives until it is told: (process, its createLease answer)."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=arbiter.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process, json.loads(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def lease_ids(arbiter) -> list[str]:
    return [lease["id"] for lease in arbiter.client.leases()]


def test_a_killed_process_frees_its_slot_within_100_ms_and_its_memory_within_1_s(arbiter, tenant_process):
    created = arbiter.client.create_lease(name="n", memory="4GiB")
    victim, other = tenant_process(created), arbiter.shim(created)
    other.attach()
    assert victim.ask(f"allocate {3 * GIB}") == protocol.STATUS_OK
    assert other.reserve(2 * GIB).status == protocol.STATUS_DENIED
    started = time.monotonic()
    victim.kill()
    until(lambda: other.page.process[victim.slot].pid == 0, within=0.1, what="the slot's release")
    assert other.page.process[victim.slot].device[0].used == 0
    until(lambda: len(arbiter.client.lease(created["lease"]["id"])["processes"]) == 1, within=1)
    assert other.reserve(2 * GIB).status == protocol.STATUS_OK
    assert time.monotonic() - started < 1
    other.close()


def test_a_killed_processs_slot_is_handed_out_again_empty(arbiter, tenant_process):
    created = arbiter.client.create_lease(name="n")
    first = tenant_process(created)
    first.ask(f"allocate {GIB}")
    first.kill()
    until(lambda: not arbiter.client.lease(created["lease"]["id"])["processes"])
    second = tenant_process(created)
    assert second.slot == first.slot
    assert second.ask("used") == 0


def test_kills_in_a_row_leave_nothing(arbiter, tenant_process):
    created = arbiter.client.create_lease(name="n", memory="4GiB")
    survivor = arbiter.shim(created)
    survivor.attach()
    for _ in range(10):
        batch = [tenant_process(created) for _ in range(2)]
        for process in batch:
            process.ask(f"allocate {GIB}")
            process.kill()
    until(lambda: len(arbiter.client.lease(created["lease"]["id"])["processes"]) == 1)
    assert survivor.allocate(4 * GIB).status == protocol.STATUS_OK
    survivor.close()


def test_a_kernels_death_alone_keeps_the_lease(arbiter, tenant_process):
    created = arbiter.client.create_lease(name="n")
    kernel = tenant_process(created)
    arbiter.client.add_process(created["lease"]["id"], kernel.pid)
    kernel.kill()
    until(lambda: not arbiter.client.lease(created["lease"]["id"])["processes"])
    assert lease_ids(arbiter) == [created["lease"]["id"]]


def test_the_holders_death_alone_keeps_the_lease(arbiter, holder, tenant_process):
    process, created = holder
    kernel = tenant_process(created)
    process.kill()
    process.wait()
    assert kernel.ask(f"allocate {GIB}") == protocol.STATUS_OK
    assert lease_ids(arbiter) == [created["lease"]["id"]]
    kernel.kill()
    until(lambda: not lease_ids(arbiter), within=1, what="the lease's end")


def test_a_lead_process_that_never_attached_keeps_the_lease_too(arbiter, holder):
    process, created = holder
    lead = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    arbiter.client.add_process(created["lease"]["id"], lead.pid)
    process.kill()
    process.wait()
    assert arbiter.client.lease(created["lease"]["id"])["processes"][0]["pid"] == lead.pid
    lead.kill()
    lead.wait()
    lead.stdin.close()
    until(lambda: not lease_ids(arbiter), within=1)


def test_a_holder_that_dies_before_its_kernel_exists_ends_the_lease(arbiter, holder):
    process, _ = holder
    process.kill()
    until(lambda: not lease_ids(arbiter), within=1)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_restarted_arbiter_takes_tenants_back_with_page_slot_and_figures(make_arbiter, tenant_process, end):
    arbiter = make_arbiter().start()
    created = arbiter.client.create_lease(name="n", kernel_id="k", memory="4GiB")
    lease_id = created["lease"]["id"]
    first, second = tenant_process(created), tenant_process(created)
    for process in (first, second):
        assert process.ask(f"allocate {GIB}") == protocol.STATUS_OK
    arbiter.client.patch_lease(lease_id, memory="3GiB")
    arbiter.client.report_activity(lease_id, open_cells=1)
    before = arbiter.client.lease(lease_id)
    getattr(arbiter, end)()
    arbiter.start()
    assert arbiter.client.lease(lease_id) == before
    assert first.ask("reconnect") == protocol.STATUS_OK
    assert second.ask("reconnect") == protocol.STATUS_OK
    assert (first.ask("used"), second.ask("used")) == (GIB, GIB)
    assert first.ask(f"allocate {2 * GIB}") == protocol.STATUS_DENIED
    assert first.ask(f"allocate {GIB}") == protocol.STATUS_OK
    assert arbiter.tenant_client(created["token"]).lease("self")["parts"][0]["memory_used"] == 3 * GIB


def test_after_a_restart_a_death_frees_the_slot_although_the_shim_has_not_reconnected(make_arbiter, tenant_process):
    arbiter = make_arbiter().start()
    created = arbiter.client.create_lease(name="n", memory="4GiB")
    first, second = tenant_process(created), tenant_process(created)
    first.ask(f"allocate {3 * GIB}")
    arbiter.kill()
    arbiter.start()
    first.kill()
    until(lambda: len(arbiter.client.lease(created["lease"]["id"])["processes"]) == 1, within=1)
    assert second.ask("reconnect") == protocol.STATUS_OK
    assert second.ask(f"allocate {3 * GIB}") == protocol.STATUS_OK


def test_what_died_while_no_arbiter_ran_is_noticed(make_arbiter, tenant_process):
    arbiter = make_arbiter().start()
    created = arbiter.client.create_lease(name="n", memory="4GiB")
    victim, survivor = tenant_process(created), tenant_process(created)
    victim.ask(f"allocate {3 * GIB}")
    arbiter.kill()
    victim.kill()
    victim.process.wait()
    arbiter.start()
    assert [process["pid"] for process in arbiter.client.lease(created["lease"]["id"])["processes"]] == [survivor.pid]
    assert survivor.ask("reconnect") == protocol.STATUS_OK
    assert survivor.ask(f"allocate {3 * GIB}") == protocol.STATUS_OK


def test_a_lease_whose_processes_all_ended_meanwhile_is_dropped(make_arbiter):
    arbiter = make_arbiter().start()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=arbiter.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    arbiter.kill()
    process.communicate("\n")
    arbiter.start()
    assert lease_ids(arbiter) == []
    arbiter.kill()
    arbiter.start()
    assert lease_ids(arbiter) == []


def test_an_unreadable_journal_is_set_aside_and_the_arbiter_starts(make_arbiter):
    arbiter = make_arbiter()
    (arbiter.directory / "journal.sqlite").write_bytes(b"this is no database" * 100)
    arbiter.start()
    assert lease_ids(arbiter) == []
    assert (arbiter.directory / "journal.sqlite.unreadable").exists()
    assert "cannot be used" in arbiter.log()
    arbiter.client.create_lease(name="n")


def test_it_ends_after_its_last_client_and_tenant_and_not_before(make_arbiter):
    arbiter = make_arbiter().start("--linger", "0.5")
    created = arbiter.client.create_lease(name="n")
    with pytest.raises(subprocess.TimeoutExpired):  # a tenant keeps it for longer than it lingers
        arbiter.process.wait(timeout=1.5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.connect(str(arbiter.socket))
        listener.sendall(b"GET /vgpu/api/events HTTP/1.0\r\n\r\n")
        assert b"200" in listener.recv(4096)
        arbiter.client.release(created["lease"]["id"])
        with pytest.raises(subprocess.TimeoutExpired):  # so does a listener
            arbiter.process.wait(timeout=1.5)
    assert arbiter.process.wait(timeout=10) == 0
    assert not arbiter.socket.exists() and not (arbiter.directory / "shim.sock").exists()


def test_a_second_arbiter_in_the_same_directory_gives_way(arbiter):
    second = subprocess.run(
        [sys.executable, "-m", "jupyter_vgpu.arbiter", "--socket", str(arbiter.socket)],
        env=arbiter.environ,
        timeout=30,
        stderr=subprocess.PIPE,
    )
    assert second.returncode == 0 and b"another arbiter serves" in second.stderr
    assert arbiter.client.pool()["arbiter"]["pid"] == arbiter.process.pid


def test_many_clients_at_once_start_one_arbiter(directory):
    code = """
import os, sys
from jupyter_vgpu.arbiter.client import ArbiterClient
print(ArbiterClient.start(os.environ, arguments=("--linger", "3")).pool()["arbiter"]["pid"])
"""
    environ = {"PATH": "", "HOME": str(directory), "XDG_RUNTIME_DIR": str(directory)}
    command = [sys.executable, "-W", "error", "-c", code]
    starters = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    pids = {starter.communicate(timeout=60)[0] for starter in starters}
    assert [starter.returncode for starter in starters] == [0] * 5
    assert len(pids) == 1 and pids != {""}
    path = directory / "jupyter-vgpu" / "arbiter.sock"
    assert ArbiterClient.find(environ).socket == path
    until(lambda: not path.exists(), within=15, what="the arbiter's end")
