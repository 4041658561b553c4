"""The jupyter_server extension `jupyter_vgpu`: puts its parts together, and makes `vgpu` the default provisioner."""

from __future__ import annotations

import asyncio
import os
from typing import Optional

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.extension.application import ExtensionApp
from prometheus_client import REGISTRY

from jupyter_vgpu.server import routes
from jupyter_vgpu.server.activity import KERNEL_ACTIONS, ActivityWatcher
from jupyter_vgpu.server.events import PoolEvents
from jupyter_vgpu.server.metrics import PoolCollector
from jupyter_vgpu.server.monitor import PoolMonitor

PROVISIONER = "vgpu"
TICK = 5.0
"""Seconds between looks at the kernels and, while somebody scrapes, at the pool."""


class VgpuExtension(ExtensionApp):
    """Loaded by jupyter_server through `jupyter_vgpu._jupyter_server_extension_points`."""

    name = "jupyter_vgpu"

    monitor: PoolMonitor
    watcher: Optional[ActivityWatcher] = None
    _ticking: Optional[asyncio.Task] = None
    _collector: Optional[PoolCollector] = None

    def initialize_settings(self) -> None:
        """Called by `ExtensionApp.initialize`, when kernel manager, event logger and web application are there."""
        app = self.serverapp
        passive = None
        if app.gateway_config.gateway_enabled:
            passive = f"kernels run on the gateway {app.gateway_config.url}; GPUs are managed there, not here"
        else:
            self._choose_provisioner()
        self.monitor = PoolMonitor(log=self.log, passive=passive)
        self._collector = PoolCollector(self.monitor)
        self.monitor.on_event += [PoolEvents(app.event_logger, log=self.log).emit, self._collector.count]
        if passive is None:
            self.watcher = ActivityWatcher(monitor=self.monitor, kernel_manager=app.kernel_manager, log=self.log)
            self.monitor.on_snapshot.append(self.watcher.follow)
            if KERNEL_ACTIONS in app.event_logger.schemas.schema_ids:
                app.event_logger.add_listener(schema_id=KERNEL_ACTIONS, listener=self.watcher.on_kernel_action)
        REGISTRY.register(self._collector)
        # The loop's first turn, and not jupyter_server's start hook: servers embedded in other programs do not call that one.
        app.io_loop.add_callback(self._begin)

    def initialize_handlers(self) -> None:
        self.handlers.extend(routes.handlers(self.monitor))

    async def stop_extension(self) -> None:
        """Called by jupyter_server before it shuts its kernels down. A second call does nothing."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        if self.watcher is not None:
            await self.watcher.stop()
        await self.monitor.stop()
        if self._collector is not None:
            REGISTRY.unregister(self._collector)
            self._collector = None

    async def _begin(self) -> None:
        self.monitor.start()
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        """What no event tells: that a kernel is gone, and how much memory is used."""
        while True:
            await asyncio.sleep(TICK)
            if self.monitor.connected and (self._collector.watched or (self.watcher is not None and self.watcher.stale)):
                self.monitor.want_refresh()

    def _choose_provisioner(self) -> None:
        """Makes ours the default unless somebody chose one, by configuration or environment. A kernelspec's own choice always wins."""
        factory = KernelProvisionerFactory.instance(parent=self.serverapp)
        chosen = "default_provisioner_name" in self.serverapp.config.get("KernelProvisionerFactory", {})
        if chosen or os.environ.get(factory.default_provisioner_name_env):
            self.log.info("jupyter-vgpu: kernels start by the configured provisioner %r", factory.default_provisioner_name)
        elif PROVISIONER not in factory.get_provisioner_entries():
            self.log.warning("jupyter-vgpu: the provisioner %r is not installed; kernels start without a GPU lease", PROVISIONER)
        else:
            factory.default_provisioner_name = PROVISIONER
