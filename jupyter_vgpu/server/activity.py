"""Watches the kernels that have a lease: tells the arbiter who computes, ends waits on interrupts, gives back what a lost kernel held."""

from __future__ import annotations

import asyncio
from logging import Logger
from typing import Any, Optional

from jupyter_client.session import Session
from jupyter_events import EventLogger
from jupyter_server.services.kernels.kernelmanager import MappingKernelManager

from jupyter_vgpu.arbiter.api import LeaseView
from jupyter_vgpu.arbiter.client import ArbiterUnavailable
from jupyter_vgpu.pool.model import InvalidValue
from jupyter_vgpu.server.monitor import PoolMonitor
from jupyter_vgpu.server.open_cells import OpenCells

KERNEL_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"


class KernelWatch:
    """One kernel: its own subscription to the iopub channel, as jupyter_server's activity watching has one. It only listens."""

    def __init__(self, kernel_manager: Any, *, lease_id: str, changed: Any, lost: Any, log: Logger):
        self.lease_id = lease_id
        self.cells = OpenCells()
        self.reported: Optional[int] = None
        self.reporting: Optional[asyncio.Task] = None
        self._manager = kernel_manager
        self._changed = changed
        self._lost = lost
        self._log = log
        self._stream: Any = None
        self._ports: Optional[list] = None
        kernel_manager.add_restart_callback(self.restarted, "restart")
        kernel_manager.add_restart_callback(self._lost, "dead")

    def connect(self) -> None:
        """Subscribes, anew if the ports have changed. Called when the kernel has started or restarted, and at every snapshot."""
        if self._ports == self._manager.ports or not self._manager.has_kernel:
            return
        self._disconnect()
        stream = self._manager.connect_iopub()
        if not hasattr(stream, "on_recv"):  # a kernel manager without the server's event loop
            stream.close()
            self._log.debug("jupyter-vgpu: %s gives no iopub stream", type(self._manager).__name__)
            return
        self._stream, self._ports = stream, list(self._manager.ports)
        session = Session(config=self._manager.session.config, key=self._manager.session.key)

        def receive(parts: list) -> None:
            try:
                _, frames = session.feed_identities(parts)
                message = session.deserialize(frames, content=False)
                if message["header"]["msg_type"] != "status":
                    return
                state = session.unpack(message["content"])["execution_state"]
                changed = self.cells.observe(parent_header=message["parent_header"] or {}, execution_state=state)
            except (ValueError, KeyError, TypeError) as error:
                self._log.debug("jupyter-vgpu: an iopub message that is none: %s", error)
                return
            if changed:
                self._changed(self)

        stream.on_recv(receive)

    def restarted(self) -> None:
        """The kernel's process is gone, and another comes."""
        if len(self.cells):
            self.cells.clear()
            self._changed(self)

    def close(self) -> None:
        self._manager.remove_restart_callback(self.restarted, "restart")
        self._manager.remove_restart_callback(self._lost, "dead")
        self._disconnect()
        if self.reporting is not None:
            self.reporting.cancel()

    def _disconnect(self) -> None:
        if self._stream is not None and not self._stream.closed():
            self._stream.close(linger=0)
        self._stream = self._ports = None


class ActivityWatcher:
    """Watches every kernel of this server that has a lease. Made and stopped by the extension; driven by snapshots and kernel actions."""

    def __init__(self, *, monitor: PoolMonitor, kernel_manager: MappingKernelManager, log: Logger):
        self._monitor = monitor
        self._kernels = kernel_manager
        self._log = log
        self._watches: dict[str, KernelWatch] = {}
        self._tasks: set[asyncio.Task] = set()
        self._arbiter: Optional[int] = None

    @property
    def stale(self) -> bool:
        """Whether kernels came or went without an event: not every kernel manager tells what it does."""
        leases = self._monitor.snapshot["leases"] if self._monitor.snapshot else []
        unwatched = any(lease["kernel_id"] in self._kernels and lease["kernel_id"] not in self._watches for lease in leases)
        return unwatched or any(kernel_id not in self._kernels for kernel_id in self._watches)

    def follow(self, leases: list[LeaseView]) -> None:
        """Called with the leases of each snapshot: takes up kernels that have one, drops those that are gone."""
        for kernel_id in [known for known in self._watches if known not in self._kernels]:
            self._drop(kernel_id)
        arbiter = self._monitor.snapshot["arbiter"]["pid"] if self._monitor.snapshot else None
        started_anew, self._arbiter = arbiter != self._arbiter, arbiter
        for lease in leases:
            kernel_id = lease["kernel_id"]
            if kernel_id is None or kernel_id not in self._kernels:
                continue
            kernel = self._kernels.get_kernel(kernel_id)
            if not kernel.has_kernel:
                continue
            watch = self._watches.get(kernel_id)
            if watch is None:
                watch = KernelWatch(
                    kernel,
                    lease_id=lease["id"],
                    changed=self._report_soon,
                    lost=lambda kernel_id=kernel_id: self._lost(kernel_id),
                    log=self._log,
                )
                self._watches[kernel_id] = watch
            if started_anew or watch.lease_id != lease["id"]:
                watch.lease_id, watch.reported = lease["id"], None
            watch.connect()
            self._report_soon(watch)

    async def on_kernel_action(self, logger: EventLogger, schema_id: str, data: dict) -> None:
        """A listener to jupyter_server's `kernel_actions` events: what a user did to a kernel through this server."""
        kernel_id, action = data.get("kernel_id"), data.get("action")
        if data.get("status") != "success" or kernel_id is None:
            return
        watch = self._watches.get(kernel_id)
        if action == "restart" and watch is not None:
            watch.restarted()
            watch.connect()
        if action == "interrupt" and watch is not None and kernel_id in self._kernels:
            kernel = self._kernels.get_kernel(kernel_id)
            # In signal mode the provisioner has done it before the signal; a message passes no provisioner.
            if kernel.kernel_spec.interrupt_mode == "message":
                self._spawn(self._request("interrupt", watch.lease_id))
        self._monitor.want_refresh()

    async def stop(self) -> None:
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _lost(self, kernel_id: str) -> None:
        """The restarter gave up. It is going through its callbacks, of which dropping the watch takes some away: so a moment later."""
        asyncio.get_running_loop().call_soon(self._drop, kernel_id)

    def _drop(self, kernel_id: str) -> None:
        """The kernel has left the server's map: if it was not shut down, nobody else will give its lease back; if it was, there is none."""
        watch = self._watches.pop(kernel_id, None)
        if watch is not None:
            watch.close()
            self._spawn(self._request("release", watch.lease_id))

    def _report_soon(self, watch: KernelWatch) -> None:
        """One report at a time for a kernel, always of the latest number: a thousand quick cells are not a thousand requests at once."""
        if watch.reporting is None and watch.reported != len(watch.cells):
            watch.reporting = self._spawn(self._report(watch))

    async def _report(self, watch: KernelWatch) -> None:
        try:
            while watch.reported != (number := len(watch.cells)):
                await self._monitor.client.report_activity(watch.lease_id, open_cells=number)
                watch.reported = number
        except (ArbiterUnavailable, InvalidValue) as error:
            watch.reported = None  # said again with the next snapshot
            self._log.debug("jupyter-vgpu: activity of lease %s not reported: %s", watch.lease_id, error)
        finally:
            watch.reporting = None

    async def _request(self, name: str, lease_id: str) -> None:
        try:
            await getattr(self._monitor.client, name)(lease_id)
        except InvalidValue as error:
            if error.code != "not_found":
                self._log.warning("jupyter-vgpu: could not %s lease %s: %s", name, lease_id, error)
        except ArbiterUnavailable as error:
            self._log.warning("jupyter-vgpu: could not %s lease %s: %s", name, lease_id, error)

    def _spawn(self, coroutine: Any) -> asyncio.Task:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
