"""Waiting for a device: who is let in, in which order, and how a wait ends."""

from __future__ import annotations

import time

import pytest

from jupyter_vgpu.native import protocol
from tests.waiting import until

POLICY = """
queue_timeout: {timeout}
default_class: half
classes:
  half: {{memory: 8GiB, memory_guarantee: 8GiB, devices: 1}}
  most: {{memory: 12GiB, memory_guarantee: 12GiB, devices: 1}}
devices: [0]
"""


@pytest.fixture
def arbiter(make_arbiter):
    return make_arbiter(policy=POLICY.format(timeout=60)).start()


@pytest.fixture
def tenant(arbiter):
    """Makes a lease with an attached shim: (lease id, shim)."""
    shims = []

    def make(arbiter=arbiter, **request):
        created = arbiter.client.create_lease(name="n", **request)
        shims.append(arbiter.shim(created))
        assert shims[-1].attach().status == protocol.STATUS_OK
        return created["lease"]["id"], shims[-1]

    yield make
    for shim in shims:
        shim.close()


def queue(arbiter) -> list[str]:
    return [entry["lease_id"] for entry in arbiter.client.pool()["queue"]]


def test_attaching_never_waits_and_the_first_context_does(arbiter, tenant):
    admitted = [tenant() for _ in range(2)]
    for _, shim in admitted:
        assert shim.ask(protocol.OP_ADMIT).status == protocol.STATUS_OK
    waiting_id, waiting = tenant()
    number = waiting.send(protocol.OP_ADMIT)
    until(lambda: queue(arbiter) == [waiting_id])
    lease = arbiter.client.lease(waiting_id)
    assert (lease["state"], lease["queue_position"]) == ("queued", 1)
    assert "guarantee" in lease["message"]
    assert waiting.reserve(1).status == protocol.STATUS_OK  # other requests are answered meanwhile
    arbiter.client.release(admitted[0][0])
    reply = waiting.receive()
    assert (reply.id, reply.status) == (number, protocol.STATUS_OK)
    assert queue(arbiter) == []


def test_a_death_lets_the_next_one_in(arbiter, tenant, tenant_process):
    created = arbiter.client.create_lease(name="n", **{"class": "most"})
    first = tenant_process(created)
    assert first.ask("admit") == protocol.STATUS_OK
    _, waiting = tenant()
    waiting.send(protocol.OP_ADMIT)
    until(lambda: len(queue(arbiter)) == 1)
    first.kill()
    assert waiting.receive().status == protocol.STATUS_OK
    assert arbiter.client.lease(created["lease"]["id"])["processes"] == []


def test_interactive_goes_before_batch_and_nobody_overtakes_on_the_same_device(arbiter, tenant):
    holder, first = tenant(**{"class": "most"})
    first.ask(protocol.OP_ADMIT)
    order = []
    for request in ({"class": "half", "priority": "batch"}, {"class": "most"}, {"class": "half"}):
        lease_id, shim = tenant(**request)
        shim.send(protocol.OP_ADMIT)
        order.append((lease_id, shim))
        until(lambda: order[-1][0] in queue(arbiter))
    (batch, _), (large, large_shim), (small, _) = order
    assert queue(arbiter) == [large, small, batch]
    arbiter.client.release(holder)
    assert large_shim.receive().status == protocol.STATUS_OK
    assert queue(arbiter) == [small, batch]


def test_a_wait_ends_at_queue_timeout_with_the_reason(make_arbiter, tenant):
    arbiter = make_arbiter(policy=POLICY.format(timeout=1), name="b")
    arbiter.uuids = tuple(uuid[:-1] + "7" for uuid in arbiter.uuids[:1])  # another device than the other arbiter's
    arbiter.set_processes({})
    arbiter.start()
    _, first = tenant(arbiter, **{"class": "most"})
    first.ask(protocol.OP_ADMIT)
    _, waiting = tenant(arbiter)
    started = time.monotonic()
    reply = waiting.ask(protocol.OP_ADMIT)
    assert reply.status == protocol.STATUS_DENIED and "queue_timeout" in reply.reason
    assert 0.9 < time.monotonic() - started < 5
    assert queue(arbiter) == []


def test_an_interrupt_ends_the_wait_and_the_next_one_waits_anew(arbiter, tenant):
    holder, first = tenant(**{"class": "most"})
    first.ask(protocol.OP_ADMIT)
    lease_id, waiting = tenant()
    waiting.send(protocol.OP_ADMIT)
    until(lambda: queue(arbiter) == [lease_id])
    arbiter.client.interrupt(lease_id)
    assert waiting.receive().status == protocol.STATUS_DENIED
    assert queue(arbiter) == []
    waiting.send(protocol.OP_ADMIT)
    until(lambda: queue(arbiter) == [lease_id])
    arbiter.client.release(holder)
    assert waiting.receive().status == protocol.STATUS_OK


def test_all_threads_of_a_tenant_share_one_place(arbiter, tenant):
    holder, first = tenant(**{"class": "most"})
    first.ask(protocol.OP_ADMIT)
    lease_id, waiting = tenant()
    for _ in range(5):
        waiting.send(protocol.OP_ADMIT)
    until(lambda: queue(arbiter) == [lease_id])
    arbiter.client.release(holder)
    assert [waiting.receive().status for _ in range(5)] == [protocol.STATUS_OK] * 5


def test_a_waiter_that_disconnects_leaves_the_queue(arbiter, tenant):
    _, first = tenant(**{"class": "most"})
    first.ask(protocol.OP_ADMIT)
    lease_id, waiting = tenant()
    waiting.send(protocol.OP_ADMIT)
    until(lambda: queue(arbiter) == [lease_id])
    waiting.socket.close()
    until(lambda: queue(arbiter) == [])


def test_a_smaller_wish_lets_a_waiting_lease_in(arbiter, tenant):
    _, first = tenant()
    first.ask(protocol.OP_ADMIT)
    lease_id, waiting = tenant(**{"class": "most"})
    waiting.send(protocol.OP_ADMIT)
    until(lambda: queue(arbiter) == [lease_id])
    arbiter.client.patch_lease(lease_id, **{"class": "half"})
    assert waiting.receive().status == protocol.STATUS_OK
