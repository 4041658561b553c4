"""Which devices there are, and which of them are ours."""

from __future__ import annotations

from dataclasses import replace

from jupyter_vgpu.arbiter.locks import DeviceLocks
from jupyter_vgpu.pool.model import Device
from jupyter_vgpu.pool.policy import Policy


class Inventory:
    """All devices of the machine in NVML's order. Of those that the policy uses, one is ours while we hold its lock; a foreign one names
    its arbiter in `managed_by`."""

    def __init__(self, devices: list[Device], locks: DeviceLocks):
        self._listed = devices
        self._locks = locks
        self.devices: tuple[Device, ...] = ()

    @property
    def managed(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if self._locks.holds(device.uuid))

    @property
    def foreign(self) -> bool:
        return any(device.managed_by is not None for device in self.devices)

    def refresh(self, policy: Policy) -> list[Device]:
        """Takes what the policy wants and nobody has, gives up what it does not want.

        Returns the devices that changed hands.
        """
        before = {device.uuid: device for device in self.devices}
        self.devices = tuple(
            replace(device, managed_by=self._locks.acquire(device.uuid)) if policy.uses(device) else device for device in self._listed
        )
        for device in self.devices:
            if not policy.uses(device):
                self._locks.release(device.uuid)
        return [device for device in self.devices if before.get(device.uuid) != device]
