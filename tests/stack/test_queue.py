"""Guarantees that fill the device: who comes later waits at his first context, and at nothing before it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.stack.stack import GIB, CudaError, Stack, Tenant
from tests.waiting import until

POLICY = """
default_class: whole
queue_timeout: {timeout}
classes:
  whole:
    memory: 12GiB
    memory_guarantee: 12GiB
    devices: 1
"""


@pytest.fixture
def full(idle_stack: Stack) -> Callable[..., tuple[Tenant, Tenant]]:
    """full(timeout=seconds) -> one with a context on device 0, and one that must wait for it."""

    def make(*, timeout: float) -> tuple[Tenant, Tenant]:
        stack = idle_stack.start(policy=POLICY.format(timeout=timeout))
        device = stack.device()["uuid"]
        found = []
        for _ in range(2):
            tenant = stack.tenant(memory=None)
            tenant.patch(device=device)
            found.append(tenant)
        found[0].enter()
        return tuple(found)

    return make


def test_queries_answer_at_once_while_the_first_context_waits(idle_stack: Stack, full) -> None:
    _, waiting = full(timeout=60)
    assert waiting.init() < 1.0
    start = time.monotonic()
    assert (len(waiting.devices()), waiting.total()) == (1, 12 * GIB)
    assert waiting.nvml()[0]["memory"][0] == [12 * GIB, 0, 12 * GIB]
    assert time.monotonic() - start < 5.0, "no query may wait in the queue"
    waiting.send("enter")
    until(lambda: waiting.lease["state"] == "queued")
    lease = waiting.lease
    assert lease["queue_position"] == 1
    assert "12 GiB" in lease["message"]
    assert [entry["lease_id"] for entry in idle_stack.client.pool()["queue"]] == [waiting.lease_id]
    assert not waiting.answered(within=0)


def test_a_tenants_end_lets_the_next_in(full) -> None:
    first, waiting = full(timeout=60)
    waiting.send("enter")
    until(lambda: waiting.lease["state"] == "queued")
    first.kill()
    assert waiting.answered(within=1.0)
    waiting.receive()
    waiting.allocate(11 * GIB)


def test_an_interrupt_ends_the_wait_within_a_second_and_the_next_call_waits_anew(idle_stack: Stack, full) -> None:
    first, waiting = full(timeout=60)
    waiting.send("enter")
    until(lambda: waiting.lease["state"] == "queued")
    idle_stack.client.interrupt(waiting.lease_id)
    assert waiting.answered(within=1.0)
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        waiting.receive()
    assert idle_stack.client.pool()["queue"] == []
    waiting.send("enter")
    until(lambda: waiting.lease["state"] == "queued")
    first.kill()
    waiting.receive()


def test_the_wait_ends_with_queue_timeout(full) -> None:
    _, waiting = full(timeout=1)
    waiting.init()
    start = time.monotonic()
    waiting.send("enter")
    assert waiting.answered(within=10)
    with pytest.raises(CudaError, match="^OUT_OF_MEMORY$"):
        waiting.receive()
    assert time.monotonic() - start >= 1.0
    assert waiting.lease["state"] != "queued"


def test_a_killed_waiter_leaves_the_queue(idle_stack: Stack, full) -> None:
    _, waiting = full(timeout=60)
    waiting.send("enter")
    until(lambda: waiting.lease["state"] == "queued")
    waiting.kill()
    until(lambda: idle_stack.client.pool()["queue"] == [], within=1.0)


def test_a_wait_survives_the_arbiters_death(idle_stack: Stack, full) -> None:
    first, waiting = full(timeout=60)
    waiting.send("enter")
    until(lambda: waiting.lease["state"] == "queued")
    idle_stack.kill_arbiter()
    idle_stack.start()
    until(lambda: waiting.lease["state"] == "queued", what="the wait at the arbiter's successor")
    first.kill()
    assert waiting.answered(within=5.0)
    waiting.receive()
