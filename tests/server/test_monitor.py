from __future__ import annotations

import asyncio
import contextlib

import pytest

from jupyter_vgpu.arbiter.client import ArbiterUnavailable
from jupyter_vgpu.native import locate
from jupyter_vgpu.server.monitor import RETRY_FIRST, RETRY_LONGEST, retry_delay
from tests.provisioner.kernels import until
from tests.server.fake_client import FakeClient, lease, monitor

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setattr(locate, "unavailable_reason", lambda: None)


@contextlib.asynccontextmanager
async def running(made):
    made.start()
    try:
        yield made
    finally:
        await made.stop()


def connecting_to(*answers):
    """A `connect` that gives these one after another; an exception is raised."""
    left = list(answers)

    async def connect(environ):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return connect


def test_retries_back_off_and_stay_bounded():
    delays = [retry_delay(attempt) for attempt in range(200)]
    assert delays[0] == RETRY_FIRST and delays == sorted(delays) and delays[-1] == RETRY_LONGEST


async def test_snapshot_is_taken_once_subscribed_and_events_are_passed_on():
    client, heard, leases = FakeClient(), [], []
    client.leases_now = [lease()]
    made = monitor(connecting_to(client))
    made.on_event.append(heard.append)
    made.on_snapshot.append(leases.extend)
    async with running(made):
        await until(lambda: made.snapshot)
        assert [entry["id"] for entry in leases] == ["l1"]
        client.stream.put_nowait({"type": "attached"})
        await until(lambda: heard)
        assert heard == [{"type": "attached"}]


async def test_arbiter_that_ends_is_connected_to_anew_and_the_old_snapshot_is_dropped(monkeypatch):
    monkeypatch.setattr("jupyter_vgpu.server.monitor.retry_delay", lambda attempt: 0)
    first, second = FakeClient(), FakeClient()
    made = monitor(connecting_to(first, ArbiterUnavailable("still starting"), second))
    async with running(made):
        await until(lambda: made.snapshot)
        first.stream.put_nowait(None)
        await until(lambda: first.closed and made.connected and made.snapshot)
        assert made.client is second


async def test_without_an_arbiter_the_pool_is_empty_and_says_why():
    made = monitor(connecting_to(ArbiterUnavailable("the lock is somebody else's")))
    async with running(made):
        await until(lambda: made._failures == 0 and not made.connected and made._reason.startswith("the lock"))
        pool = await made.pool()
    assert pool["arbiter"] is None and pool["message"] == "the lock is somebody else's"
    with pytest.raises(ArbiterUnavailable, match="somebody else's"):
        _ = made.client


@pytest.mark.parametrize(("value", "simulated"), [("1x1GiB", True), ("", False), ("two", False)])
async def test_pool_is_simulated_before_an_arbiter_answers_where_that_was_asked_for(value, simulated):
    made = monitor(connecting_to(), environ={"VGPU_SIMULATED": value})
    pool = await made.pool()
    assert pool["arbiter"] is None and pool["simulated"] is simulated


async def test_behind_a_gateway_nothing_is_started_and_the_pool_says_so():
    async def connect(environ):
        raise AssertionError("a passive monitor connects to nothing")

    made = monitor(connect, passive="kernels run on the gateway http://x")
    async with running(made):
        assert not made._tasks
        assert (await made.pool())["message"] == "kernels run on the gateway http://x"
        assert await made.leases(None) == []


async def test_failing_listener_keeps_neither_the_others_nor_the_connection_from_working():
    client, heard = FakeClient(), []
    made = monitor(connecting_to(client))
    made.on_event += [lambda event: 1 / 0, heard.append]
    async with running(made):
        await until(lambda: made.connected)
        client.stream.put_nowait({"type": "idle"})
        await until(lambda: heard)
        assert made.connected


async def test_burst_of_events_is_one_look():
    client, looks = FakeClient(), []
    made = monitor(connecting_to(client))
    made.on_snapshot.append(looks.append)
    async with running(made):
        await until(lambda: looks)
        for _ in range(100):
            client.stream.put_nowait({"type": "active"})
        await until(lambda: client.stream.empty())
        await asyncio.sleep(0)
        assert len(looks) <= 2
