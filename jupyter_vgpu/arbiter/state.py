"""Everything that the arbiter knows, in one place, and how it looks from outside. Touched by the arbiter's loop alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from jupyter_vgpu.arbiter import ledger
from jupyter_vgpu.arbiter.api import DeviceView, EventView, LeaseView, PoolView, QueueView
from jupyter_vgpu.arbiter.events import Events
from jupyter_vgpu.arbiter.inventory import Inventory
from jupyter_vgpu.arbiter.journal import Journal
from jupyter_vgpu.arbiter.policy_file import PolicyFile
from jupyter_vgpu.arbiter.processes import command, user_name
from jupyter_vgpu.arbiter.queue import Queue
from jupyter_vgpu.arbiter.readings import Readings
from jupyter_vgpu.arbiter.runtime import Runtime
from jupyter_vgpu.arbiter.tenants import Tenant, Tenants
from jupyter_vgpu.arbiter.watches import Watches
from jupyter_vgpu.pool.model import Device, LeaseState
from jupyter_vgpu.pool.policy import Policy


@dataclass
class State:
    """`clock` gives seconds since the epoch, for people; `monotonic` is for deadlines."""

    runtime: Runtime
    scope: Literal["user", "host"]
    simulated: bool
    unavailable: str | None
    """Why there are no devices, if there are none."""
    policy_file: PolicyFile
    inventory: Inventory
    readings: Readings
    tenants: Tenants
    queue: Queue
    events: Events
    journal: Journal
    watches: Watches
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    started: float
    context_memory: int = 0
    """Bytes that a context alone takes, as measured on a process that had nothing else; 0 = not measured yet."""

    @property
    def policy(self) -> Policy:
        return self.policy_file.policy

    def announce(self, kind: str, message: str, tenant: Tenant | None = None) -> None:
        """Tells everybody who listens. With a tenant, the event carries its lease as it is now."""
        event: EventView = {"type": kind, "lease_id": None, "kernel_id": None, "message": message, "lease": None}
        if tenant is not None:
            event.update(lease_id=tenant.id, kernel_id=tenant.lease.kernel_id, lease=self.lease_view(tenant))
        self.events.emit(event)

    def lease_state(self, tenant: Tenant) -> LeaseState:
        """`starting` until a process is known; `queued` while its first context waits."""
        if tenant.id in self.queue:
            return "queued"
        if not tenant.processes:
            return "starting"
        return "active" if tenant.activity.idle_since(now=self.clock()) is None else "idle"

    def lease_view(self, tenant: Tenant) -> LeaseView:
        lease = tenant.lease
        state = self.lease_state(tenant)
        return {
            "id": lease.id,
            "kernel_id": lease.kernel_id,
            "name": lease.name,
            "path": lease.path,
            "owner": lease.owner,
            "uid": lease.uid,
            "class": lease.grant.lease_class,
            "priority": lease.grant.priority,
            "state": state,
            "parts": [
                {
                    "device": part.device,
                    "memory": part.memory,
                    "memory_guarantee": part.memory_guarantee,
                    "memory_used": ledger.shown(tenant, index),
                    "compute": part.compute,
                    "compute_cap": part.compute_cap,
                }
                for index, part in enumerate(lease.grant.parts)
            ],
            "processes": [
                {"pid": process.pid, "name": command(process.pid), "memory_used": ledger.process_shown(tenant, process)}
                for process in tenant.processes.values()
            ],
            "created": lease.created,
            "idle_since": tenant.activity.idle_since(now=self.clock()) if state == "idle" else None,
            "message": self.queue.reason(tenant.id) or lease.grant.message,
            "queue_position": self.queue.position(tenant.id),
        }

    def device_view(self, device: Device) -> DeviceView:
        reading = self.readings.latest.get(device.uuid)
        tenants = {process.pid for tenant in self.tenants for process in tenant.attached}
        others = reading.processes.keys() - tenants - reading.gone() if reading else set()
        unmanaged = {pid: reading.processes[pid] for pid in others}
        return {
            "uuid": device.uuid,
            "index": device.index,
            "name": device.name,
            "simulated": device.simulated,
            "managed_by": device.managed_by,
            "memory_total": device.memory_total,
            "memory_pool": self.policy.pool_memory(device),
            "memory_used": reading.memory_used if reading else 0,
            "memory_unmanaged": sum(unmanaged.values()),
            "utilization": reading.utilization if reading else None,
            "temperature": reading.temperature if reading else None,
            "power": reading.power if reading else None,
            # What another arbiter's device runs are its tenants, not intruders.
            "unmanaged": []
            if device.managed_by
            else [{"pid": pid, "name": command(pid), "memory_used": used} for pid, used in sorted(unmanaged.items())],
        }

    def queue_view(self) -> list[QueueView]:
        return [
            {"lease_id": entry.lease_id, "position": position, "reason": entry.reason, "since": entry.since}
            for position, entry in enumerate(self.queue.order(), start=1)
        ]

    def pool_view(self) -> PoolView:
        return {
            "arbiter": {
                "pid": os.getpid(),
                "version": _version(),
                "owner": user_name(os.getuid()),
                "scope": self.scope,
                "started": self.started,
            },
            "time": self.clock(),
            "simulated": self.simulated,
            "message": self._message(),
            "devices": [self.device_view(device) for device in self.inventory.devices if self.policy.uses(device)],
            "leases": [self.lease_view(tenant) for tenant in self.tenants],
            "queue": self.queue_view(),
            "policy": self.policy_file.view(),
        }

    def _message(self) -> str | None:
        devices = [device for device in self.inventory.devices if self.policy.uses(device)]
        if self.unavailable:
            return self.unavailable
        if not devices:
            return "The policy's `devices` names none of this machine's devices."
        if not self.inventory.managed:
            holders = sorted({device.managed_by for device in devices if device.managed_by})
            return f"All devices are managed by another arbiter ({', '.join(holders)}); kernels start unmanaged."
        return "These devices are simulated: no real GPU is used." if self.simulated else None


@cache
def _version() -> str:
    try:
        return version("jupyter-vgpu")
    except PackageNotFoundError:  # a source tree on sys.path
        return "unknown"
