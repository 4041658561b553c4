"""A CUDA program that obeys: one JSON line in, one out. It knows nothing of us; what it runs under decides what it sees.

    ["method", arguments...] -> [error, value]; `error` is CUDA's name without its prefix, null for success

`tenant.py SOCKET` forks such a program for each connection instead: tests that need many of them would wait long.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from typing import Any, TextIO

from cuda.bindings import driver

MIB = 1024**2


class CudaError(Exception):
    pass


def ok(result: tuple) -> Any:
    """The value of a cuda-bindings call."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(status.name.removeprefix("CUDA_ERROR_"))
    return values[0] if len(values) == 1 else tuple(values)


class Program:
    def __init__(self) -> None:
        self._frees: dict[int, Any] = {}
        self._keys = 0

    def pid(self) -> int:
        return os.getpid()

    def init(self) -> float:
        """Seconds that cuInit took."""
        start = time.monotonic()
        ok(driver.cuInit(0))
        return time.monotonic() - start

    def devices(self) -> list[str]:
        """UUIDs in CUDA's order, as NVML writes them."""
        found = []
        for ordinal in range(ok(driver.cuDeviceGetCount())):
            digits = bytes(ok(driver.cuDeviceGetUuid(ordinal)).bytes).hex()
            found.append(f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}")
        return found

    def enter(self, ordinal: int = 0) -> None:
        """A current primary context."""
        ok(driver.cuInit(0))
        ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(ordinal))))))

    def leave(self, ordinal: int = 0) -> None:
        ok(driver.cuDevicePrimaryCtxRelease(ok(driver.cuDeviceGet(ordinal))))

    def total(self, ordinal: int = 0) -> int:
        return ok(driver.cuDeviceTotalMem(ok(driver.cuDeviceGet(ordinal))))

    def memory(self) -> list[int]:
        """free and total, by cuMemGetInfo."""
        return list(ok(driver.cuMemGetInfo()))

    def allocate(self, size: int, family: str = "cuMemAlloc") -> list[int]:
        """A key for `free`, and the bytes that the family took."""
        taken, free = getattr(self, f"_{family}")(size)
        self._keys += 1
        self._frees[self._keys] = free
        return [self._keys, taken]

    def free(self, key: int) -> None:
        self._frees.pop(key)()

    def _cuMemAlloc(self, size: int):
        pointer = ok(driver.cuMemAlloc(size))
        return size, lambda: ok(driver.cuMemFree(pointer))

    def _cuMemAllocPitch(self, size: int):
        width = 100_000
        pointer, pitch = ok(driver.cuMemAllocPitch(width, size // width, 4))
        return pitch * (size // width), lambda: ok(driver.cuMemFree(pointer))

    def _cuMemAllocManaged(self, size: int):
        pointer = ok(driver.cuMemAllocManaged(size, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
        return size, lambda: ok(driver.cuMemFree(pointer))

    def _cuMemAllocAsync(self, size: int):
        pointer = ok(driver.cuMemAllocAsync(size, 0))

        def free() -> None:
            ok(driver.cuMemFreeAsync(pointer, 0))
            ok(driver.cuStreamSynchronize(0))

        return size, free

    def _cuMemCreate(self, size: int):
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = 0
        size = size // (2 * MIB) * (2 * MIB)
        handle = ok(driver.cuMemCreate(size, properties, 0))
        return size, lambda: ok(driver.cuMemRelease(handle))

    def nvml(self) -> list[dict[str, Any]]:
        """What NVML tells of each device, in its order."""
        import pynvml

        pynvml.nvmlInit()
        try:
            found = []
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                first = pynvml.nvmlDeviceGetMemoryInfo(handle)
                second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
                processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
                found.append(
                    {
                        "uuid": pynvml.nvmlDeviceGetUUID(handle),
                        "memory": [[info.free, info.used, info.total] for info in (first, second)],
                        "processes": {process.pid: process.usedGpuMemory for process in processes},
                    }
                )
            return found
        finally:
            pynvml.nvmlShutdown()

    def launch(self, name: str, *values: int) -> None:
        """One of the demo kernels, one thread, with 32-bit parameters; waits for its end."""
        module = ok(driver.cuModuleLoadData(open(os.environ["DEMO_KERNELS"], "rb").read() + b"\0"))
        function = ok(driver.cuModuleGetFunction(module, name.encode()))
        parameters = (tuple(values), tuple(ctypes.c_uint32 for _ in values))
        ok(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0))
        ok(driver.cuCtxSynchronize())


def obey(commands: TextIO, answers: TextIO) -> None:
    program = Program()
    for line in commands:
        method, *arguments = json.loads(line)
        try:
            answer = [None, getattr(program, method)(*arguments)]
        except CudaError as error:
            answer = [str(error), None]
        print(json.dumps(answer), file=answers, flush=True)


def fork_for_each_connection(path: str) -> None:
    """Programs that need not be loaded anew: a connection's first line is what its program's environment has besides."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            with connection, connection.makefile("r") as commands, connection.makefile("w") as answers:
                os.environ.update(json.loads(commands.readline()))
                obey(commands, answers)
            os._exit(0)
        connection.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        fork_for_each_connection(sys.argv[1])
    own_answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed must not stand between two answers
    obey(sys.stdin, own_answers)
