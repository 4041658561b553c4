"""Which devices there are, and which of them are ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jupyter_vgpu.arbiter.locks import DeviceLocks
from jupyter_vgpu.pool.model import Device
from jupyter_vgpu.pool.policy import Policy


class Inventory:
    """The devices of the pool in NVML's order. A device is ours while we hold its lock; a foreign one names its arbiter in `managed_by`."""

    def __init__(self, devices: Callable[[], list[Device]], locks: DeviceLocks):
        self._list = devices
        self._locks = locks
        self.devices: tuple[Device, ...] = ()

    @property
    def managed(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.managed_by is None)

    def get(self, uuid: str) -> Device | None:
        return next((device for device in self.devices if device.uuid == uuid), None)

    @property
    def foreign(self) -> bool:
        return any(device.managed_by is not None for device in self.devices)

    def refresh(self, policy: Policy) -> list[Device]:
        """Takes what the policy wants and nobody has, gives up what it does not want.

        Returns the devices that came, went or changed hands.
        """
        before = {device.uuid: device for device in self.devices}
        self.devices = tuple(
            replace(device, managed_by=self._locks.acquire(device.uuid)) for device in self._list() if policy.uses(device)
        )
        after = {device.uuid: device for device in self.devices}
        for uuid in before.keys() - after.keys():
            self._locks.release(uuid)
        return [after.get(uuid, before.get(uuid)) for uuid in before | after if before.get(uuid) != after.get(uuid)]
