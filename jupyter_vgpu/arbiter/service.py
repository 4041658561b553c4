"""The arbiter itself: its parts put together, on one asyncio loop. `process.py` gives it a process to run in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal

from jupyter_vgpu.arbiter import http, ledger
from jupyter_vgpu.arbiter.admissions import Admissions
from jupyter_vgpu.arbiter.events import Events
from jupyter_vgpu.arbiter.inventory import Inventory
from jupyter_vgpu.arbiter.journal import Journal
from jupyter_vgpu.arbiter.lifetimes import Lifetimes
from jupyter_vgpu.arbiter.locks import DeviceLocks
from jupyter_vgpu.arbiter.operations import Operations
from jupyter_vgpu.arbiter.policy_file import PolicyFile, PolicyWatcher
from jupyter_vgpu.arbiter.queue import Queue
from jupyter_vgpu.arbiter.readings import PERIOD, Readings
from jupyter_vgpu.arbiter.runtime import Runtime
from jupyter_vgpu.arbiter.shim_socket import ShimSocket
from jupyter_vgpu.arbiter.state import State
from jupyter_vgpu.arbiter.tenants import Tenant, Tenants
from jupyter_vgpu.arbiter.watches import Watches
from jupyter_vgpu.devices import DeviceBackend, DevicesUnavailable
from jupyter_vgpu.native.scheduler import Scheduler

LINGER = 60.0
"""Seconds that the arbiter stays after its last client and tenant."""
_TICK = 0.5
_LOCK_PERIOD = 1.0

_log = logging.getLogger(__name__)


class Arbiter:
    """One arbiter in one directory, whose lock the caller holds. `start`, `run` until nobody needs it or `stop` is called, `close`.

    `backend` is None where there are no devices, and `unavailable` then says why.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        backend: DeviceBackend | None,
        unavailable: str | None,
        simulated: bool,
        environ: Mapping[str, str],
        scope: Literal["user", "host"] = "user",
        linger: float = LINGER,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._linger = linger
        self._scheduler = Scheduler()
        self._locks = DeviceLocks(loop)
        self._stopping = asyncio.Event()
        self._watcher: PolicyWatcher | None = None
        self._server = None
        try:
            devices = backend.devices() if backend is not None else []
            if not devices and unavailable is None:
                unavailable = "The driver works, and there is no device."
        except DevicesUnavailable as error:
            devices, unavailable = [], str(error)
        policy_file = PolicyFile.find(environ)
        policy_file.reload()
        self.state = State(
            runtime=runtime,
            scope=scope,
            simulated=simulated,
            unavailable=unavailable,
            policy_file=policy_file,
            inventory=Inventory(devices, self._locks),
            readings=Readings(backend, clock=monotonic),
            tenants=Tenants(),
            queue=Queue(),
            events=Events(clock),
            journal=Journal(runtime.journal),
            watches=Watches(self._scheduler),
            clock=clock,
            monotonic=monotonic,
            started=clock(),
        )
        self._touched = monotonic()
        self.lifetimes = Lifetimes(self.state, ended=self._ended, freed=lambda tenant: self.admissions.reconsider())
        self.admissions = Admissions(self.state, write=self.lifetimes.write)
        self.shims = ShimSocket(self.state, lifetimes=self.lifetimes, admissions=self.admissions)
        self.operations = Operations(self.state, lifetimes=self.lifetimes, admissions=self.admissions)

    async def start(self) -> None:
        """Takes the devices and the leases back, then opens the sockets: who connects finds everything in place."""
        runtime, host = self.state.runtime, self.state.scope == "host"
        self.state.inventory.refresh(self.state.policy)
        self.lifetimes.restore()
        self._loop.add_reader(self._scheduler.event_descriptor, self.state.watches.dispatch)
        self._watcher = PolicyWatcher(self.state.policy_file.paths, lambda: self._loop.call_soon_threadsafe(self._policy_touched))
        self.shims.open(runtime.shim_socket, mode=0o666 if host else 0o600)
        self._server = http.serve(self.state, self.operations, path=runtime.socket, mode=0o666 if host else 0o600, touch=self._touch)

    async def run(self) -> None:
        """Until `stop`, or until nobody has needed the arbiter for `linger` seconds. The host service stays."""
        tasks = [
            self._loop.create_task(self._every(_LOCK_PERIOD, self._contend)),
            self._loop.create_task(self._every(PERIOD, self._observe)),
            self._loop.create_task(self._every(_TICK, self._end_when_unused)),
        ]
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self) -> None:
        self._stopping.set()

    async def close(self) -> None:
        """Gives everything back but the leases, which stay in the journal."""
        if self._server is not None:
            self._server.stop()
        self.state.events.close()
        self.shims.close()
        await asyncio.sleep(0)  # the streams write their ends
        if self._server is not None:
            await self._server.close_all_connections()
        if self._watcher is not None:
            await self._loop.run_in_executor(None, self._watcher.close)
        self.lifetimes.close()
        self._loop.remove_reader(self._scheduler.event_descriptor)
        self._scheduler.close()
        self.state.readings.close()
        self._locks.close()
        self.state.journal.close()
        for path in (self.state.runtime.shim_socket, self.state.runtime.socket):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def _ended(self, tenant: Tenant) -> None:
        self.admissions.cancel(tenant, "the lease has ended")
        self.shims.disconnect(tenant)
        self.admissions.reconsider()

    def _touch(self) -> None:
        self._touched = self.state.monotonic()

    async def _every(self, period: float, action: Callable) -> None:
        while True:
            await asyncio.sleep(period)
            try:
                await action()
            except Exception:
                _log.exception("%s failed; it is tried again in %g s", action.__name__, period)

    async def _contend(self) -> None:
        """A device that another arbiter held may be free by now."""
        if self.state.inventory.foreign:
            self._refresh_inventory()

    def _refresh_inventory(self) -> None:
        for device in self.state.inventory.refresh(self.state.policy):
            owner = f"is managed by {device.managed_by}" if device.managed_by else "is in this pool"
            self.state.announce("device_changed", f"{device.name} ({device.uuid}) {owner}")
        self.admissions.reconsider()

    async def _observe(self) -> None:
        """Looks at the devices and the tenants' counters, while there are tenants or listeners."""
        state = self.state
        if not state.tenants and not state.events:
            return
        if state.inventory.devices:
            await state.readings.refresh(state.inventory.devices, state.tenants)
        for tenant in state.tenants:
            tenant.activity.observe_launches(ledger.launches(tenant), now=state.clock())
            self.operations.announce_activity(tenant)

    async def _end_when_unused(self) -> None:
        if self.state.scope == "host" or self.state.tenants or self.state.events:
            self._touch()
        elif self.state.monotonic() - self._touched >= self._linger:
            _log.info("no client and no tenant for %g s: the arbiter ends", self._linger)
            self.stop()

    def _policy_touched(self) -> None:
        state = self.state
        revision = state.policy_file.revision
        self._watcher.rearm()
        if not state.policy_file.reload():
            return
        if state.policy_file.error:
            state.announce("policy_error", state.policy_file.error)
        else:
            state.announce("policy_changed", f"{state.policy_file.source or 'the built-in default'} is in force")
        if state.policy_file.revision != revision:
            self._refresh_inventory()
