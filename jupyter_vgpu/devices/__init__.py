"""Which devices there are, and their books. `choose` is cheap and loads nothing; `Nvml` is for the arbiter and `doctor`."""

from .base import DeviceBackend, DeviceMemory, DeviceProcess, DeviceReadings, DevicesUnavailable
from .detect import choose
from .nvidia import Nvml
from .simulated import SimulatedSpec, simulated_spec

__all__ = [
    "DeviceBackend",
    "DeviceMemory",
    "DeviceProcess",
    "DeviceReadings",
    "DevicesUnavailable",
    "Nvml",
    "SimulatedSpec",
    "choose",
    "simulated_spec",
]
