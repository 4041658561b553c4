"""What a device backend is: how the arbiter learns which devices there are and reads their books.

One backend a vendor's interface. `nvidia.Nvml` serves real and simulated NVIDIA devices alike; others come beside it. A backend only
reads: it makes no context, loads no compute library and changes no setting. Its calls may block for milliseconds, so the arbiter makes
them on a worker thread, one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from jupyter_vgpu.pool.model import Device


class DevicesUnavailable(RuntimeError):
    """The interface itself does not answer (no library, no driver, versions that do not match); the text is for a person.

    The next call tries anew: a driver can be loaded, upgraded or repaired while the arbiter runs.
    """


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of one device. `used` is by anybody, what the driver itself reserves not included where it says so."""

    total: int
    used: int
    free: int


@dataclass(frozen=True)
class DeviceProcess:
    """A process that holds something on a device. `memory_used` in bytes, None where the driver does not tell (WSL, some containers).

    `pid` is as the driver gives it: in the PID namespace that the driver chose, which inside a container need not be the arbiter's.
    """

    pid: int
    memory_used: int | None


@dataclass(frozen=True)
class DeviceReadings:
    """What a device's sensors say; None for each that this device does not have (MIG instances, consumer cards, virtual machines)."""

    utilization: float | None = None
    """0 to 1: part of the last sampling period with any kernel running. For people; no measure of a share."""
    temperature: float | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""


class DeviceBackend(Protocol):
    def devices(self) -> list[Device]:
        """All devices of the machine in the driver's order; `index` counts from 0 in that order.

        Called by the arbiter at start, by `doctor`, and again when a device seems to have come or gone.
        Raises `DevicesUnavailable`; an empty list means that the driver works and has no device.
        """

    def memory(self, uuid: str) -> DeviceMemory | None:
        """The device's books. Called every few seconds while somebody looks or tenants exist; None when it cannot be read now."""

    def processes(self, uuid: str) -> list[DeviceProcess]:
        """Who holds memory on the device, each process once.

        Called with `memory`, and at once after a tenant's first context: that is how the context's own memory is measured. Empty when it
        cannot be read.
        """

    def readings(self, uuid: str) -> DeviceReadings:
        """The sensors. Called with `memory`; what is not there is None."""

    def close(self) -> None:
        """Called once, when the arbiter ends."""
