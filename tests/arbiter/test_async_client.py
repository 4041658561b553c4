"""The asynchronous client, as provisioner and server use it."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_vgpu.arbiter.client import ArbiterUnavailable, AsyncArbiterClient
from jupyter_vgpu.pool.model import InvalidValue
from tests.arbiter.conftest import GIB


def run(arbiter, work):
    async def main():
        client = await AsyncArbiterClient.find(arbiter.environ)
        try:
            return await asyncio.wait_for(work(client), 30)
        finally:
            client.close()

    return asyncio.run(main())


def test_every_operation_is_there(arbiter):
    async def work(client):
        created = await client.create_lease(name="n", kernel_id="k", memory="4GiB", lease_class=None)
        lease_id = created["lease"]["id"]
        assert (await client.lease(lease_id))["id"] == lease_id
        assert [lease["id"] for lease in await client.leases(kernel_id="k")] == [lease_id]
        assert (await client.patch_lease(lease_id, memory="6GiB"))["parts"][0]["memory"] == 6 * GIB
        await client.add_process(lease_id, arbiter.process.pid)
        await client.report_activity(lease_id, open_cells=1)
        await client.interrupt(lease_id)
        assert (await client.pool())["leases"][0]["state"] == "active"
        assert (await client.policy())["source"] is None
        await client.release(lease_id)
        assert await client.leases() == []

    run(arbiter, work)


def test_errors_are_the_arbiters_own(arbiter):
    async def work(client):
        with pytest.raises(InvalidValue) as problem:
            await client.lease("none")
        assert problem.value.code == "not_found"
        with pytest.raises(InvalidValue) as problem:
            await client.create_lease(name="")
        assert problem.value.field == "name"

    run(arbiter, work)


def test_events_arrive_and_the_stream_ends_with_the_arbiter(make_arbiter):
    arbiter = make_arbiter().start()

    async def work(client):
        events = []

        async def listen():
            async for event in client.events():
                events.append(event["type"])

        listener = asyncio.create_task(listen())
        while not {"created", "released"} <= set(events):  # the subscription may begin between the two
            created = await client.create_lease(name="n")
            await client.release(created["lease"]["id"])
        arbiter.kill()
        with pytest.raises(ArbiterUnavailable):
            await listener
        assert set(events) == {"created", "released"}
        with pytest.raises(ArbiterUnavailable):
            await client.pool()

    run(arbiter, work)


def test_a_closed_stream_is_no_longer_a_client(make_arbiter):
    arbiter = make_arbiter().start("--linger", "0.5")

    async def work(client):
        stream = client.events()
        first = asyncio.create_task(anext(stream))
        while not first.done():
            created = await client.create_lease(name="n")
            await client.release(created["lease"]["id"])
        await stream.aclose()

    run(arbiter, work)
    assert arbiter.process.wait(timeout=10) == 0


def test_without_an_arbiter_it_says_where_it_looked(tmp_path):
    with pytest.raises(ArbiterUnavailable, match="arbiter.sock"):
        asyncio.run(AsyncArbiterClient.find({"XDG_RUNTIME_DIR": str(tmp_path)}))
