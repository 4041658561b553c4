"""An arbiter that is none, for the rules of the monitor: says what a test tells it to."""

from __future__ import annotations

import asyncio
import logging

from jupyter_vgpu.arbiter.client import ArbiterUnavailable
from jupyter_vgpu.server.monitor import PoolMonitor

POLICY = {"source": None, "revision": 1, "error": None, "policy": {}}


def lease(lease_id="l1", kernel_id="k1", state="active"):
    part = {"device": "GPU-1", "memory": 8, "memory_guarantee": 2, "memory_used": 4, "compute": 0.5, "compute_cap": None}
    return {"id": lease_id, "kernel_id": kernel_id, "name": "n", "state": state, "parts": [part]}


def snapshot(leases=()):
    device = {"uuid": "GPU-1", "memory_total": 16, "memory_pool": 12, "memory_used": 5, "memory_unmanaged": 1}
    device.update(utilization=0.25, temperature=None, power=300.0, managed_by=None)
    arbiter = {"pid": 1, "version": "0", "owner": "me", "scope": "user", "started": 0.0}
    return {"arbiter": arbiter, "time": 7.0, "devices": [device], "leases": list(leases), "queue": [], "policy": POLICY}


class FakeClient:
    def __init__(self):
        self.leases_now = []
        self.stream = asyncio.Queue()
        self.closed = False

    async def pool(self):
        return snapshot(self.leases_now)

    async def events(self, *, subscribed):
        subscribed()
        while (event := await self.stream.get()) is not None:
            yield event
        raise ArbiterUnavailable("the arbiter has ended")

    def close(self):
        self.closed = True


def monitor(connect, *, environ=None, **arguments):
    return PoolMonitor(log=logging.getLogger("test"), environ=environ or {"VGPU_SIMULATED": "1x1GiB"}, connect=connect, **arguments)
