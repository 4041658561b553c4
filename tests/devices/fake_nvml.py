"""A machine's NVML without a machine: the part of pynvml's interface that `Nvml` uses, over plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml

GIB = 1024**3


class NVMLError(Exception):
    def __init__(self, value: int):
        super().__init__(f"error {value}")
        self.value = value


@dataclass(eq=False)
class Gpu:
    """`missing`: functions that answer NOT_SUPPORTED on this device. Processes as pid -> bytes or None."""

    uuid: str
    name: str = "NVIDIA H200"
    total: int = 140 * GIB
    used: int = 0
    reserved: int = 0
    processes: dict[int, int | None] = field(default_factory=dict)
    drawing: dict[int, int | None] = field(default_factory=dict)
    instances: dict[int, Gpu] | None = None
    missing: set[str] = field(default_factory=set)
    lost: bool = False


class FakeNvml:
    NVMLError = NVMLError
    nvmlMemory_v2 = pynvml.nvmlMemory_v2
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, *gpus: Gpu):
        self.gpus = list(gpus)
        self.broken: int | None = None
        """An error that every call answers with: NVML as a whole is gone."""
        self.process_list_versions = {3, 2}
        self.inits = self.shutdowns = 0

    def __getattr__(self, name):
        if name.startswith("NVML_ERROR_"):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def _check(self, gpu: Gpu | None = None, function: str = ""):
        if self.broken is not None:
            raise NVMLError(self.broken)
        if self.inits == self.shutdowns:
            raise NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if gpu is not None and gpu.lost:
            raise NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if gpu is not None and function in gpu.missing:
            raise NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlInit(self):
        if self.broken is not None:
            raise NVMLError(self.broken)
        self.inits += 1

    def nvmlShutdown(self):
        self._check()
        self.shutdowns += 1

    def nvmlDeviceGetCount(self):
        self._check()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        self._check(self.gpus[index], "handle")
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu):
        self._check(gpu, "uuid")
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu):
        self._check(gpu, "name")
        return gpu.name

    def nvmlDeviceGetMigMode(self, gpu):
        self._check(gpu, "mig")
        if gpu.instances is None and gpu.uuid.startswith("MIG-"):
            raise NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return [int(gpu.instances is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu):
        self._check(gpu)
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu, index):
        self._check(gpu)
        if index not in gpu.instances:
            raise NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.instances[index]

    def nvmlDeviceGetMemoryInfo(self, gpu, version=None):
        self._check(gpu, "memory_v2" if version else "memory")
        if version:
            return SimpleNamespace(total=gpu.total, used=gpu.used, reserved=gpu.reserved, free=gpu.total - gpu.used - gpu.reserved)
        return SimpleNamespace(total=gpu.total, used=gpu.used + gpu.reserved, free=gpu.total - gpu.used - gpu.reserved)

    def _listed(self, gpu, held, version):
        self._check(gpu, "processes")
        if version not in self.process_list_versions:
            raise NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in held.items()]

    def nvmlDeviceGetComputeRunningProcesses_v3(self, gpu):
        return self._listed(gpu, gpu.processes, 3)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, gpu):
        return self._listed(gpu, gpu.processes, 2)

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, gpu):
        return self._listed(gpu, gpu.drawing, 3)

    def nvmlDeviceGetGraphicsRunningProcesses_v2(self, gpu):
        return self._listed(gpu, gpu.drawing, 2)

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, gpu):
        raise NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    nvmlDeviceGetMPSComputeRunningProcesses_v2 = nvmlDeviceGetMPSComputeRunningProcesses_v3

    def nvmlDeviceGetUtilizationRates(self, gpu):
        self._check(gpu, "utilization")
        return SimpleNamespace(gpu=37, memory=5)

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        self._check(gpu, "temperature")
        return 41

    def nvmlDeviceGetPowerUsage(self, gpu):
        self._check(gpu, "power")
        return 123_500
