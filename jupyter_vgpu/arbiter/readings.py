"""What the devices say of themselves, read in a thread: NVML may take its time, and the loop must not wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from jupyter_vgpu.arbiter import ledger
from jupyter_vgpu.arbiter.tenants import Tenant, Tenants
from jupyter_vgpu.pool.model import Device

PERIOD = 2.0
"""Seconds between two readings while somebody looks or tenants exist."""
READ_TIMEOUT = 5.0

_log = logging.getLogger(__name__)


class Backend(Protocol):
    """What the arbiter asks of a kind of device (`jupyter_vgpu.devices`): which there are at the start, and their books in a thread."""

    def devices(self) -> list[Device]: ...
    def memory(self, uuid: str): ...
    def processes(self, uuid: str): ...
    def readings(self, uuid: str): ...


@dataclass(frozen=True)
class Reading:
    """One device at one instant. Memory in bytes; `processes` maps pids to what the driver holds for them."""

    memory_used: int
    memory_free: int
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None
    processes: Mapping[int, int] = field(default_factory=dict)


class Readings:
    """The last readings by UUID. Each refresh also settles the residuals of the tenants' processes."""

    def __init__(self, backend: Backend, *, clock: Callable[[], float]):
        self._backend = backend
        self._clock = clock
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vgpu-nvml")
        self._running: asyncio.Future | None = None
        self._read_at = float("-inf")
        self.latest: dict[str, Reading] = {}

    @property
    def age(self) -> float:
        """Seconds on the monotonic clock since the last reading."""
        return self._clock() - self._read_at

    async def refresh(self, devices: tuple[Device, ...], tenants: Tenants) -> None:
        """Reads all devices now, or joins the reading that is under way. Bounded: a driver that hangs leaves the last readings."""
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._read(devices, tenants))
        await asyncio.wait([self._running], timeout=READ_TIMEOUT)

    async def measure(self, devices: tuple[Device, ...], tenants: Tenants) -> None:
        """As `refresh`, but only a reading that began after this call will do: a context has just been made."""
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running], timeout=READ_TIMEOUT)
        await self.refresh(devices, tenants)

    async def _read(self, devices: tuple[Device, ...], tenants: Tenants) -> None:
        used_before = {
            (tenant.id, process.pid, index): tenant.page.usage(process.slot, index).used
            for tenant in tenants
            if tenant.page is not None
            for process in tenant.attached
            for index in range(len(tenant.lease.grant.parts))
        }
        loop = asyncio.get_running_loop()
        self.latest = await loop.run_in_executor(self._executor, self._ask, [device.uuid for device in devices])
        self._read_at = self._clock()
        for tenant in tenants:
            if tenant.page is not None:
                self._settle(tenant, used_before)

    def _settle(self, tenant: Tenant, used_before: dict[tuple[str, int, int], int]) -> None:
        for index, part in enumerate(tenant.lease.grant.parts):
            reading = self.latest.get(part.device)
            for process in tenant.attached if reading else ():
                before = used_before.get((tenant.id, process.pid, index))
                if before is not None:
                    ledger.set_residual(
                        tenant, process, index, held_by_driver=reading.processes.get(process.pid, 0), used_before=before
                    )

    def _ask(self, uuids: list[str]) -> dict[str, Reading]:
        result = {}
        for uuid in uuids:
            try:
                memory, readings = self._backend.memory(uuid), self._backend.readings(uuid)
                processes = {process.pid: process.memory_used or 0 for process in self._backend.processes(uuid)}
            except Exception as error:  # a driver that is being updated fails in any way; the pool goes on with what it knows
                _log.warning("device %s cannot be read: %s", uuid, error)
                continue
            result[uuid] = Reading(
                memory_used=memory.used,
                memory_free=memory.free,
                utilization=readings.utilization,
                temperature=readings.temperature,
                power=readings.power,
                processes=processes,
            )
        return result

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
