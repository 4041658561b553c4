"""What the devices say of themselves, read in a thread: NVML may take its time, and the loop must not wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from jupyter_vgpu.arbiter import ledger
from jupyter_vgpu.arbiter.processes import start_time
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
    """One device at one instant. Memory in bytes; `processes` maps pids to what the driver holds for them.

    `started` maps pids to when they started, where that can be seen (NVML may speak of a PID namespace that is not ours); of those that had
    ended already and were still in the driver's books, too.
    """

    memory_used: int
    memory_free: int
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None
    processes: Mapping[int, int] = field(default_factory=dict)
    started: Mapping[int, int] = field(default_factory=dict)

    def gone(self) -> set[int]:
        """Those of `processes` that have ended since."""
        return {pid for pid in self.processes if pid in self.started and start_time(pid) != self.started[pid]}


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
        self._troubles: dict[str, str] = {}
        """Why devices cannot be read, by UUID: said once, not at every reading."""
        self.latest: dict[str, Reading] = {}

    @property
    def outdated(self) -> bool:
        """Whether the last reading is too old to be shown: by its age, or because a process in it has ended since."""
        return self._clock() - self._read_at > PERIOD or any(reading.gone() for reading in self.latest.values())

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
        known = {uuid: dict(reading.started) for uuid, reading in self.latest.items()}
        self.latest = await loop.run_in_executor(self._executor, self._ask, [device.uuid for device in devices], known)
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

    def _ask(self, uuids: list[str], known: Mapping[str, Mapping[int, int]]) -> dict[str, Reading]:
        """Runs in the thread. `known`: the processes that the readings before could see, by device."""
        result = {}
        for uuid in uuids:
            try:
                reading = self._ask_one(uuid, known.get(uuid, {}))
                trouble = "it is lost, or the driver does not tell its memory" if reading is None else None
            except DevicesUnavailable as error:
                reading, trouble = None, str(error)
            if reading is not None:
                result[uuid] = reading
            self._note(uuid, trouble)
        return result

    def _ask_one(self, uuid: str, known: Mapping[int, int]) -> Reading | None:
        memory = self._backend.memory(uuid)
        if memory is None:
            return None
        readings = self._backend.readings(uuid)
        listed = {process.pid: process.memory_used or 0 for process in self._backend.processes(uuid)}
        started = {pid: start for pid in listed if (start := start_time(pid)) is not None}
        # The driver takes a while to let go of a process that has ended; who could be seen before and cannot be now is one.
        dead = known.keys() & listed.keys() - started.keys()
        return Reading(
            memory_used=memory.used,
            memory_free=memory.free,
            utilization=readings.utilization,
            temperature=readings.temperature,
            power=readings.power,
            processes={pid: held for pid, held in listed.items() if pid not in dead},
            started=started | {pid: known[pid] for pid in dead},
        )

    def _note(self, uuid: str, trouble: str | None) -> None:
        if trouble is None:
            if self._troubles.pop(uuid, None) is not None:
                _log.info("device %s can be read again", uuid)
        elif self._troubles.get(uuid) != trouble:
            self._troubles[uuid] = trouble
            _log.warning("device %s cannot be read: %s", uuid, trouble)

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
