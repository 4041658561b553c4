"""What the devices say of themselves, read in a thread: NVML may take its time, and the loop must not wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from jupyter_vgpu.arbiter import ledger
from jupyter_vgpu.arbiter.tenants import Tenants
from jupyter_vgpu.devices import DeviceBackend, DevicesUnavailable
from jupyter_vgpu.pool.model import Device

PERIOD = 2.0
"""Seconds between two readings while somebody looks or tenants exist."""
READ_TIMEOUT = 5.0
STEADY = 1.0
"""Seconds that a process's ledger must stand still before a smaller residual is believed."""
_Key = tuple[str, int, int]

_log = logging.getLogger(__name__)


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

    def __init__(self, backend: DeviceBackend | None, *, clock: Callable[[], float]):
        self._backend = backend
        self._clock = clock
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vgpu-nvml")
        self._running: asyncio.Future | None = None
        self._read_at = float("-inf")
        self._steady: dict[_Key, tuple[int, float]] = {}
        """By process and device: the ledger's figure, and since when readings have found it so."""
        self.latest: dict[str, Reading] = {}

    @property
    def age(self) -> float:
        """Seconds on the monotonic clock since the last reading."""
        return self._clock() - self._read_at

    async def refresh(self, devices: tuple[Device, ...], tenants: Tenants) -> None:
        """Reads all devices now, or joins the reading that is under way. Bounded: a driver that hangs leaves the last readings."""
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._read(devices, tenants))
        done, _ = await asyncio.wait([self._running], timeout=READ_TIMEOUT)
        for reading in done:
            reading.result()  # raises what went wrong in it
        if not done:
            _log.warning("the devices did not answer within %g s; their last readings stand", READ_TIMEOUT)

    async def measure(self, devices: tuple[Device, ...], tenants: Tenants) -> None:
        """As `refresh`, but only a reading that began after this call will do: a context has just been made."""
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running], timeout=READ_TIMEOUT)
        await self.refresh(devices, tenants)

    async def _read(self, devices: tuple[Device, ...], tenants: Tenants) -> None:
        before = _ledger_figures(tenants)
        loop = asyncio.get_running_loop()
        self.latest = await loop.run_in_executor(self._executor, self._ask, [device.uuid for device in devices])
        self._read_at = self._clock()
        self._settle(tenants, before)

    def _settle(self, tenants: Tenants, before: dict[_Key, int]) -> None:
        """Residual = NVML's figure minus the ledger's, where the ledger has not moved while NVML was asked."""
        after = _ledger_figures(tenants)
        unmoved = {key: used for key, used in after.items() if before.get(key) == used}
        self._steady = {
            key: self._steady[key] if key in self._steady and self._steady[key][0] == used else (used, self._read_at)
            for key, used in unmoved.items()
        }
        for tenant in tenants:
            for process in tenant.attached:
                for index, part in enumerate(tenant.lease.grant.parts):
                    key = (tenant.id, process.pid, index)
                    if key in unmoved and part.device in self.latest:
                        held = self.latest[part.device].processes.get(process.pid, 0)
                        may_fall = self._read_at - self._steady[key][1] >= STEADY
                        ledger.set_residual(tenant, process, index, residual=max(0, held - unmoved[key]), may_fall=may_fall)

    def _ask(self, uuids: list[str]) -> dict[str, Reading]:
        result = {}
        for uuid in uuids:
            try:
                memory, readings = self._backend.memory(uuid), self._backend.readings(uuid)
                processes = {process.pid: process.memory_used or 0 for process in self._backend.processes(uuid)}
            except DevicesUnavailable as error:
                _log.warning("device %s cannot be read: %s", uuid, error)
                continue
            if memory is None:
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
        if self._backend is not None:
            self._backend.close()


def _ledger_figures(tenants: Tenants) -> dict[_Key, int]:
    """What each process says that it has allocated, by lease, pid and device index."""
    return {
        (tenant.id, process.pid, index): tenant.page.usage(process.slot, index).used
        for tenant in tenants
        if tenant.page is not None
        for process in tenant.attached
        for index in range(len(tenant.lease.grant.parts))
    }
