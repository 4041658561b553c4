"""Who may make a context, and who may have more memory: the waits of tenants, answered by the rules of pool/ and the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from jupyter_vgpu.arbiter import ledger
from jupyter_vgpu.arbiter.queue import Waiting
from jupyter_vgpu.arbiter.state import State
from jupyter_vgpu.arbiter.tenants import Process, Tenant
from jupyter_vgpu.pool.admission import admissible
from jupyter_vgpu.pool.units import format_size

_DENIED_EVENT_PERIOD = 1.0
"""Seconds: a framework that retries in a loop must not flood the listeners."""


class Admissions:
    """`write` journals a tenant's lease."""

    def __init__(self, state: State, *, write: Callable[[Tenant], None]):
        self._state = state
        self._write = write
        self._waiters: dict[str, list[asyncio.Future[str | None]]] = {}

    async def admit(self, tenant: Tenant) -> str | None:
        """Waits until the tenant may make its first context. None = it may; else why not, after `queue_timeout` or an interrupt."""
        if tenant.lease.admitted:
            return None
        state = self._state
        waiter: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(tenant.id, []).append(waiter)
        timeout = state.policy.queue_timeout
        if tenant.id not in state.queue:
            state.queue.add(
                Waiting(
                    lease_id=tenant.id,
                    priority=tenant.lease.grant.priority,
                    devices=frozenset(part.device for part in tenant.lease.grant.parts),
                    reason="others wait for the same device",
                    since=state.clock(),
                    deadline=state.monotonic() + timeout,
                )
            )
            self.reconsider()
            if tenant.id in state.queue:
                state.announce("queued", f"{tenant.lease.name}: waits for the GPU: {state.queue.reason(tenant.id)}", tenant)
                asyncio.get_running_loop().call_later(timeout, self.expire)
        try:
            return await waiter
        finally:
            self._drop(tenant.id, waiter)

    def reconsider(self) -> None:
        """Admits who may run now. Called after everything that can free a device: a release, a death, a change of lease or policy."""
        state = self._state

        def may_run(lease_id: str) -> str | None:
            tenant = state.tenants.get(lease_id)
            reason = admissible(tenant.lease, policy=state.policy, devices=state.inventory.devices, leases=state.tenants.leases())
            if reason is None:
                tenant.lease = replace(tenant.lease, admitted=True)
            return reason

        for lease_id in state.queue.admit(may_run):
            tenant = state.tenants.get(lease_id)
            self._write(tenant)
            self._answer(lease_id, None)
            state.announce("admitted", f"{tenant.lease.name}: may use the GPU", tenant)

    def changed(self, tenant: Tenant) -> None:
        """The lease was changed while it may be waiting."""
        grant = tenant.lease.grant
        self._state.queue.update(tenant.id, priority=grant.priority, devices=[part.device for part in grant.parts])
        self.reconsider()

    def expire(self) -> None:
        """Called when a wait's time may be up."""
        for lease_id in self._state.queue.expired(now=self._state.monotonic()):
            tenant = self._state.tenants.get(lease_id)
            reason = f"the GPU did not become free within {self._state.policy.queue_timeout:g} s (the policy's queue_timeout)"
            self._answer(lease_id, reason)
            self.deny(tenant, reason)
        self.reconsider()

    def cancel(self, tenant: Tenant, reason: str) -> None:
        """Ends the tenant's waits: an interrupt, or the end of its lease."""
        self._state.queue.remove(tenant.id)
        self._answer(tenant.id, reason)

    def deny(self, tenant: Tenant, reason: str) -> None:
        """Tells the listeners that a tenant was refused something, at most once a second each."""
        now = self._state.monotonic()
        if now - tenant.denied_at >= _DENIED_EVENT_PERIOD:
            tenant.denied_at = now
            self._state.announce("denied", f"{tenant.lease.name}: {reason}", tenant)

    async def reserve(self, tenant: Tenant, process: Process, device: int, amount: int, *, driver_short: bool) -> str | None:
        """Grants `amount` bytes on a device of the lease. None = booked for the process; else why not.

        The shim asks when its own sum says no, or when the driver was short. Before a refusal the books are brought up to date: residuals
        are measured anew, and what other threads of the tenant have added and are about to take back has time to go.
        """
        if not driver_short and ledger.grant(tenant, process, device, amount) is None:
            return None
        state = self._state
        await state.readings.measure(state.inventory.devices, state.tenants)
        if tenant.page is None or tenant.processes.get(process.pid) is not process:
            return "the lease has ended"
        if device >= len(tenant.lease.grant.parts):
            return "the lease was changed"
        reason = self._shortage_of_driver(tenant, device, amount) if driver_short else None
        reason = reason or ledger.grant(tenant, process, device, amount)
        if reason is not None:
            self.deny(tenant, f"{reason} on device {device}")
        return reason

    def _shortage_of_driver(self, tenant: Tenant, device: int, amount: int) -> str | None:
        reading = self._state.readings.latest.get(tenant.lease.grant.parts[device].device)
        if reading is None or reading.memory_free >= amount:
            return None
        return f"the device itself has {format_size(reading.memory_free)} free, {format_size(amount)} asked"

    def _answer(self, lease_id: str, reason: str | None) -> None:
        for waiter in self._waiters.pop(lease_id, []):
            if not waiter.done():
                waiter.set_result(reason)

    def _drop(self, lease_id: str, waiter: asyncio.Future) -> None:
        """A waiter is gone, answered or not; the last one of a lease that still queues takes its place along."""
        waiters = self._waiters.get(lease_id)
        if waiters is not None:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[lease_id]
                self._state.queue.remove(lease_id)
                self.reconsider()
