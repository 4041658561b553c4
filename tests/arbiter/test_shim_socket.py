"""Attach, limits, reservations and reconnects, as a shim sees them."""

from __future__ import annotations

import array
import os
import resource
import socket
import uuid

import pytest

from jupyter_vgpu.native import protocol
from jupyter_vgpu.native.control import MAX_PROCESSES, ControlPage
from jupyter_vgpu.native.protocol import Request, pack_request
from tests.arbiter.conftest import GIB
from tests.arbiter.shim import Shim
from tests.waiting import until


@pytest.fixture
def created(arbiter):
    return arbiter.client.create_lease(name="a.ipynb", memory="4GiB", compute=0.25)


@pytest.fixture
def shim(arbiter, created):
    shim = arbiter.shim(created)
    assert shim.attach().status == protocol.STATUS_OK
    yield shim
    shim.close()


def test_attach_gives_a_sealed_page_with_the_leases_limits(arbiter, created, shim):
    page = shim.page
    assert page.device_count == len(arbiter.uuids)
    for index, name in enumerate(arbiter.uuids):
        assert bytes(page.device[index].uuid) == uuid.UUID(name.removeprefix("GPU-")).bytes
        assert page.device[index].memory_limit == 4 * GIB
        assert page.device[index].compute_share == 250_000
        assert page.device[index].compute_cap == 0
    assert page.process[shim.slot].pid == os.getpid()
    assert page.process_high_water == shim.slot + 1
    with pytest.raises(PermissionError):
        os.ftruncate(shim.page_descriptor, 0)


def test_a_resize_reaches_the_page_at_once_and_raises_the_revision(arbiter, created, shim):
    revision = shim.page.revision
    arbiter.client.patch_lease(created["lease"]["id"], memory="6GiB", compute=0.5, compute_cap=0.75)
    assert shim.page.device[0].memory_limit == 6 * GIB
    assert (shim.page.device[0].compute_share, shim.page.device[0].compute_cap) == (500_000, 750_000)
    assert shim.page.revision == revision + 1


def test_a_reservation_within_the_limit_is_granted_and_committed(arbiter, created, shim):
    assert shim.reserve(3 * GIB).status == protocol.STATUS_OK
    assert shim.usage().granted == 3 * GIB
    shim.usage().used += 3 * GIB
    shim.send(protocol.OP_COMMIT, bytes=3 * GIB)
    until(lambda: shim.usage().granted == 0)
    lease = arbiter.client.lease(created["lease"]["id"])
    assert lease["parts"][0]["memory_used"] == 3 * GIB
    assert lease["processes"] == [{"pid": os.getpid(), "name": lease["processes"][0]["name"], "memory_used": 3 * GIB}]


def test_a_reservation_beyond_the_limit_is_denied_with_the_figures(shim):
    assert shim.allocate(3 * GIB).status == protocol.STATUS_OK
    reply = shim.reserve(2 * GIB)
    assert reply.status == protocol.STATUS_DENIED
    assert reply.reason == "2 GiB asked, 1 GiB of the lease's 4 GiB free"
    assert shim.usage().granted == 0 and shim.usage().used == 3 * GIB


def test_the_limit_is_the_tenants_not_the_processs(shim, created, tenant_process):
    assert shim.allocate(3 * GIB).status == protocol.STATUS_OK
    other = tenant_process(created)
    assert other.slot != shim.slot
    assert other.ask(f"allocate {2 * GIB}") == protocol.STATUS_DENIED
    assert other.ask(f"allocate {GIB}") == protocol.STATUS_OK


def test_grants_that_are_under_way_count(shim):
    assert shim.reserve(3 * GIB).status == protocol.STATUS_OK
    assert shim.reserve(2 * GIB).status == protocol.STATUS_DENIED


def test_the_contexts_own_memory_counts_once_it_is_measured(arbiter, shim):
    arbiter.set_processes({arbiter.uuids[0]: {os.getpid(): GIB}})
    assert shim.ask(protocol.OP_MEASURE).status == protocol.STATUS_OK
    assert shim.usage().residual == GIB
    assert shim.usage(1).residual == 0
    assert shim.allocate(3 * GIB).status == protocol.STATUS_OK
    # NVML does not know of the 3 GiB yet, as between a reservation and its allocation: the residual must not be taken for them.
    assert shim.reserve(1).status == protocol.STATUS_DENIED
    assert shim.usage().residual == GIB


def test_a_short_driver_is_believed_only_while_nvml_says_so(arbiter, shim):
    arbiter.set_processes({arbiter.uuids[0]: {1: 15 * GIB}})
    reply = shim.reserve(2 * GIB, flags=protocol.RESERVE_DRIVER_SHORT)
    assert reply.status == protocol.STATUS_DENIED
    assert "1 GiB free" in reply.reason
    arbiter.set_processes({})
    assert shim.reserve(2 * GIB, flags=protocol.RESERVE_DRIVER_SHORT).status == protocol.STATUS_OK


def test_without_a_policy_nobody_waits_for_a_context(shim):
    assert shim.ask(protocol.OP_ADMIT).status == protocol.STATUS_OK


def test_an_unknown_token_attaches_nothing(arbiter, created):
    for token in ("", "0" * 64, created["token"][:-1], created["token"].upper()):
        stranger = Shim(created["shim_socket"], token)
        reply = stranger.attach()
        assert reply.status == protocol.STATUS_UNKNOWN_TENANT
        assert stranger.reserve(1).status == protocol.STATUS_UNKNOWN_TENANT
        stranger.close()
    assert arbiter.client.lease(created["lease"]["id"])["processes"] == []


@pytest.mark.parametrize(
    "packet",
    [b"x", b"\0" * protocol.REQUEST_SIZE, b"\xff" * protocol.REQUEST_SIZE, b"\xff" * 4096, pack_request(Request(op=1, id=1)) + b"x"],
    ids=["short", "zeros", "ones", "long", "one too many"],
)
def test_a_malformed_packet_costs_its_sender_the_connection_and_nobody_else(arbiter, shim, created, packet):
    bad = Shim(created["shim_socket"], created["token"])
    bad.socket.send(packet)
    with pytest.raises((EOFError, ConnectionResetError)):
        bad.receive()
    bad.close()
    assert shim.reserve(GIB).status == protocol.STATUS_OK


@pytest.mark.parametrize(
    "fields", [{"op": 0}, {"op": 99}, {"op": protocol.OP_RESERVE, "device": 2}, {"op": protocol.OP_ADMIT, "device": 2**32 - 1}]
)
def test_what_makes_no_sense_is_answered_with_bad_request(shim, fields):
    reply = shim.ask(fields.pop("op"), **fields)
    assert reply.status == protocol.STATUS_BAD_REQUEST
    assert reply.reason


def test_numbers_of_64_bits_do_no_harm(arbiter, created, shim):
    assert shim.reserve(2**64 - 1).status == protocol.STATUS_DENIED
    shim.send(protocol.OP_COMMIT, bytes=2**64 - 1)
    shim.usage().used = 2**64 - 1
    shim.usage().launches = 2**64 - 1
    assert shim.reserve(1).status == protocol.STATUS_DENIED
    part = arbiter.client.lease(created["lease"]["id"])["parts"][0]
    assert part["memory_used"] == part["memory"] == 4 * GIB
    assert arbiter.client.pool()["leases"][0]["processes"][0]["memory_used"] == 4 * GIB
    shim.usage().used = 0
    assert shim.reserve(GIB).status == protocol.STATUS_OK


def test_a_scribbled_page_does_not_move_the_limit(arbiter, created, shim):
    shim.page.device[0].memory_limit = 2**63
    shim.page.device_count = 2**32 - 1
    shim.page.process_high_water = 2**32 - 1
    for slot in range(MAX_PROCESSES):
        shim.page.process[slot].pid = 1
        shim.page.process[slot].device[0].used = GIB if slot == shim.slot else 2**60
    assert shim.reserve(8 * GIB).status == protocol.STATUS_DENIED
    assert shim.reserve(3 * GIB).status == protocol.STATUS_OK
    assert arbiter.client.lease(created["lease"]["id"])["parts"][0]["memory"] == 4 * GIB


def test_a_scribbled_context_size_is_nobody_elses_least_limit(arbiter, shim):
    shim.usage().residual = 2**40
    assert shim.ask(protocol.OP_MEASURE).status == protocol.STATUS_OK
    other = arbiter.client.create_lease(name="other", memory="1GiB", strict=True)
    assert other["lease"]["parts"][0]["memory"] == GIB


def test_a_lost_connection_ends_nothing(arbiter, created, shim):
    assert shim.allocate(GIB).status == protocol.STATUS_OK
    shim.socket.close()
    shim.connect()
    assert shim.attach_again().status == protocol.STATUS_OK
    assert shim.usage().used == GIB
    assert arbiter.client.lease(created["lease"]["id"])["parts"][0]["memory_used"] == GIB


def test_a_reconnect_with_a_wrong_slot_or_page_is_refused(arbiter, created, shim):
    shim.socket.close()
    shim.connect()
    assert shim.attach_again(slot=shim.slot + 1).status == protocol.STATUS_BAD_REQUEST
    assert shim.attach_again(slot=2**32 - 1).status == protocol.STATUS_BAD_REQUEST
    forged = ControlPage.create("forged")
    assert shim.attach_again(descriptor=forged.descriptor).status == protocol.STATUS_BAD_REQUEST
    forged.close()
    with open(os.devnull) as null:
        assert shim.attach_again(descriptor=null.fileno()).status == protocol.STATUS_BAD_REQUEST
    assert shim.attach_again().status == protocol.STATUS_OK


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_descriptors_that_nobody_asked_for_are_closed(arbiter, created, shim, count):
    def held() -> int:
        directory = f"/proc/{arbiter.process.pid}/fd"
        return sum(os.path.realpath(f"{directory}/{name}") == created["shim_socket"] + ".extra" for name in os.listdir(directory))

    with open(created["shim_socket"] + ".extra", "w") as extra:
        bad = Shim(created["shim_socket"], created["token"])
        descriptors = array.array("i", [extra.fileno()] * count)
        packet = pack_request(Request(op=protocol.OP_RESERVE, id=1))
        bad.socket.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        if count == 1:
            assert bad.receive().status == protocol.STATUS_UNKNOWN_TENANT
        else:
            with pytest.raises((EOFError, ConnectionResetError)):
                bad.receive()
        bad.close()
        until(lambda: held() == 0, what="the end of its descriptors")
    assert shim.reserve(GIB).status == protocol.STATUS_OK


def test_a_process_that_attaches_anew_holds_nothing(arbiter, created, shim):
    shim.allocate(GIB)
    again = arbiter.shim(created)
    assert again.attach().slot == shim.slot
    assert again.usage().used == 0
    again.close()


def test_a_release_lets_the_shims_go(arbiter, created, shim):
    arbiter.client.release(created["lease"]["id"])
    with pytest.raises((EOFError, ConnectionResetError, BrokenPipeError)):
        shim.reserve(1)
    shim.connect()
    assert shim.attach_again().status == protocol.STATUS_UNKNOWN_TENANT


def test_sockets_are_the_users_own(arbiter, created):
    assert os.stat(created["shim_socket"]).st_mode & 0o777 == 0o600
    assert os.stat(arbiter.socket).st_mode & 0o777 == 0o600


def test_a_silent_connection_does_not_hold_up_others(arbiter, created, shim):
    idle = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(20)]
    for connection in idle:
        connection.connect(created["shim_socket"])
    assert shim.reserve(GIB).status == protocol.STATUS_OK
    for connection in idle:
        connection.close()


def test_reservations_at_once_never_get_more_than_the_lease(shim):
    numbers = [shim.send(protocol.OP_RESERVE, bytes=GIB) for _ in range(8)]
    granted = [shim.receive().status == protocol.STATUS_OK for _ in numbers]
    assert sum(granted) == 4
    assert shim.usage().granted == 4 * GIB


def test_an_arbiter_out_of_descriptors_pauses_and_then_takes_who_waited(arbiter, created):
    pid = arbiter.client.pool()["arbiter"]["pid"]
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    shim = arbiter.shim(created)
    try:
        until(lambda: "cannot be accepted" in arbiter.log())
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert shim.attach().status == protocol.STATUS_OK
    assert arbiter.log().count("cannot be accepted") < 10, "it asked in a loop"
    shim.close()
