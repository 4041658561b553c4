"""The GPU in a few words of Python, for the example notebook: it calls the CUDA driver through cuda-bindings and knows nothing of
jupyter-vgpu, as a framework would. Runs on a real GPU and on a simulated one."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cuda.bindings import driver

GIB = 1024**3
_BLOCK = 256


class OutOfMemory(MemoryError):
    """CUDA_ERROR_OUT_OF_MEMORY: what torch calls torch.OutOfMemoryError."""


def _call(result: tuple) -> Any:
    status, *values = result
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemory("the GPU has no room for this")
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA: {status.name}")
    return values[0] if values else None


class Buffer:
    """`size` bytes of device memory, freed by `free`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pointer = _call(driver.cuMemAlloc(size))

    def free(self) -> None:
        _call(driver.cuMemFree(self.pointer))

    def read(self, count: int) -> list[float]:
        """The first `count` floats (32 bits each)."""
        values = array("f", bytes(4 * count))
        _call(driver.cuMemcpyDtoH(values.buffer_info()[0], self.pointer, 4 * count))
        return list(values)


class Gpu:
    """The first device that this process sees."""

    def __init__(self) -> None:
        _call(driver.cuInit(0))
        device = _call(driver.cuDeviceGet(0))
        _call(driver.cuCtxSetCurrent(_call(driver.cuDevicePrimaryCtxRetain(device))))
        self.name = _call(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
        self._module = _call(driver.cuModuleLoadData((Path(__file__).parent / "demo_kernels.ptx").read_bytes() + b"\0"))

    def memory(self) -> str:
        """Free and total memory, as the driver tells every program."""
        status, free, total = driver.cuMemGetInfo()
        _call((status,))
        return f"{free / GIB:.1f} GiB free of {total / GIB:.1f} GiB"

    def allocate(self, gib: float) -> Buffer:
        """`gib` GiB of device memory. Raises `OutOfMemory`."""
        return Buffer(int(gib * GIB))

    def upload(self, values: Iterable[float]) -> Buffer:
        """A buffer with `values` in it, 32 bits each."""
        data = array("f", values)
        buffer = Buffer(4 * len(data))
        _call(driver.cuMemcpyHtoD(buffer.pointer, data.buffer_info()[0], buffer.size))
        return buffer

    def saxpy(self, a: float, x: Buffer, y: Buffer) -> None:
        """y = a * x + y, element by element, on the GPU."""
        count = min(x.size, y.size) // 4
        kernel = _call(driver.cuModuleGetFunction(self._module, b"saxpy"))
        values = (a, int(x.pointer), int(y.pointer), count)
        types = (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
        grid = (count + _BLOCK - 1) // _BLOCK
        _call(driver.cuLaunchKernel(kernel, grid, 1, 1, _BLOCK, 1, 1, 0, 0, (values, types), 0))
        _call(driver.cuCtxSynchronize())
