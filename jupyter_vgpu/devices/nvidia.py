"""NVIDIA devices through NVML (nvidia-ml-py), real and simulated alike.

Simulated ones answer the same calls: the arbiter starts with the simulator's ``libnvidia-ml.so.1`` first on ``LD_LIBRARY_PATH``. Their
name says "Simulated", and that is all that tells them apart here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from jupyter_vgpu.pool.model import Device

from .base import DeviceMemory, DeviceProcess, DeviceReadings, DevicesUnavailable

log = logging.getLogger(__name__)
T = TypeVar("T")

_GONE = ("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND", "LIB_RM_VERSION_MISMATCH")
"""NVML errors about NVML as a whole. Every other one is about one device or one reading."""

_WHY = {
    "LIBRARY_NOT_FOUND": "libnvidia-ml.so.1 is not installed",
    "DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
    "LIB_RM_VERSION_MISMATCH": "driver and libnvidia-ml.so.1 are of different versions; after a driver upgrade the machine has to restart",
    "NO_PERMISSION": "no permission to use the NVIDIA driver's device files",
}

_PROCESS_LISTS = ("Compute", "Graphics", "MPSCompute")


class Nvml:
    """`DeviceBackend` over NVML. After NVML has vanished the next call initialises it anew. Not thread-safe: one caller at a time."""

    def __init__(self, nvml: Any = None):
        """`nvml`: a module with pynvml's functions; None imports pynvml. Raises `DevicesUnavailable` where NVML does not answer."""
        if nvml is None:
            import pynvml as nvml
        self._nvml = nvml
        self._running = False
        self._handles: dict[str, Any] = {}
        self._left_alone: set[str] = set()
        """What the last listing said of devices that cannot be used: the next one says only what is new."""
        self._start()

    def devices(self) -> list[Device]:
        self._handles = {}
        said, self._left_alone = self._left_alone, set()
        found = []
        for handle in self._all_handles():
            device = self._describe(handle, index=len(found))
            if device is not None:
                found.append(device)
                self._handles[device.uuid] = handle
        for message in sorted(self._left_alone - said):
            log.warning("%s; it is left alone", message)
        return found

    def memory(self, uuid: str) -> DeviceMemory | None:
        return self._read(uuid, self._memory, None)

    def processes(self, uuid: str) -> list[DeviceProcess]:
        return self._read(uuid, self._processes, [])

    def readings(self, uuid: str) -> DeviceReadings:
        return self._read(uuid, self._readings, DeviceReadings())

    def close(self) -> None:
        if self._running:
            self._running = False
            self._handles = {}
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                log.debug("NVML went before it was shut down")

    def _start(self) -> None:
        if not self._running:
            self._ask(self._nvml.nvmlInit)
            self._running = True

    def _ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls NVML; raises `DevicesUnavailable` where NVML as a whole is gone, else its own error."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            name = self._error_name(error)
            if name not in _GONE and self._running:
                raise
            self.close()
            raise DevicesUnavailable(f"NVML: {_WHY.get(name) or error}") from error

    def _error_name(self, error: Any) -> str:
        value = getattr(error, "value", None)
        return next((name for name in (*_GONE, *_WHY) if getattr(self._nvml, f"NVML_ERROR_{name}", object()) == value), "")

    def _reading(self, function: Callable[..., T], *arguments: Any) -> T | None:
        """As `_ask`, None where this device does not have the reading, or has fallen off its bus."""
        try:
            return self._ask(function, *arguments)
        except self._nvml.NVMLError as error:
            log.debug("NVML: %s: %s", getattr(function, "__name__", function), error)
            return None

    def _read(self, uuid: str, read: Callable[[Any], T], otherwise: T) -> T:
        self._start()
        if uuid not in self._handles:
            self.devices()
        return read(self._handles[uuid]) if uuid in self._handles else otherwise

    def _all_handles(self) -> Iterator[Any]:
        """Every GPU; in the place of one in MIG mode, its instances, because only they can be computed on."""
        nvml = self._nvml
        self._start()
        count = self._reading(nvml.nvmlDeviceGetCount)
        if count is None:
            raise DevicesUnavailable("NVML does not tell how many devices there are")
        for index in range(count):
            gpu = self._reading(nvml.nvmlDeviceGetHandleByIndex, index)
            if gpu is None:
                self._left_alone.add(f"NVML does not open GPU {index}")
                continue
            mode = self._reading(nvml.nvmlDeviceGetMigMode, gpu)
            if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
                yield gpu
                continue
            for instance in range(self._reading(nvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0):
                # The instances' numbers have gaps, and a gap answers NOT_FOUND.
                handle = self._reading(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, instance)
                if handle is not None:
                    yield handle

    def _describe(self, handle: Any, *, index: int) -> Device | None:
        uuid = self._reading(self._nvml.nvmlDeviceGetUUID, handle)
        memory = self._memory(handle)
        if uuid is None or memory is None:
            # On devices that share the machine's memory NVML has no total; a quota of an unknown total would be a lie.
            self._left_alone.add(f"NVML does not tell UUID and memory of device {index}")
            return None
        name = self._reading(self._nvml.nvmlDeviceGetName, handle) or "NVIDIA device"
        return Device(uuid=uuid, index=index, name=name, memory_total=memory.total, simulated="Simulated" in name)

    def _memory(self, handle: Any) -> DeviceMemory | None:
        nvml = self._nvml
        # The second version keeps the driver's own reserve apart from what is used; drivers before 510 have only the first.
        memory = self._reading(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
        if memory is None:
            memory = self._reading(nvml.nvmlDeviceGetMemoryInfo, handle)
        return None if memory is None else DeviceMemory(total=memory.total, used=memory.used, free=memory.free)

    def _processes(self, handle: Any) -> list[DeviceProcess]:
        """A process that both computes and draws is in several of NVML's lists, with the same figure in each."""
        held: dict[int, int | None] = {}
        for kind in _PROCESS_LISTS:
            for process in self._listed(kind, handle):
                known = held.get(process.pid)
                held[process.pid] = known if process.usedGpuMemory is None else max(known or 0, process.usedGpuMemory)
        return [DeviceProcess(pid=pid, memory_used=memory) for pid, memory in sorted(held.items())]

    def _listed(self, kind: str, handle: Any) -> list[Any]:
        """One of NVML's lists. By its versioned names: the unversioned one turns the driver's answer that it lacks the newest version
        into an exception of another family. Drivers before 510 have only the second version."""
        for version in ("_v3", "_v2"):
            listed = self._reading(getattr(self._nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}"), handle)
            if listed is not None:
                return listed
        return []

    def _readings(self, handle: Any) -> DeviceReadings:
        nvml = self._nvml
        rates = self._reading(nvml.nvmlDeviceGetUtilizationRates, handle)
        temperature = self._reading(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        milliwatts = self._reading(nvml.nvmlDeviceGetPowerUsage, handle)
        return DeviceReadings(
            utilization=None if rates is None else rates.gpu / 100,
            temperature=None if temperature is None else float(temperature),
            power=None if milliwatts is None else milliwatts / 1000,
        )
