"""Whole CUDA programs (cuda-bindings, unchanged) share the simulated devices: faults, deaths, contention, memory across processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.native.simgpu.conftest import Machine
from tests.native.simgpu.device_client import GRANULARITY
from tests.native.simgpu.programs import Programs
from tests.waiting import until

MIB, GIB, MS = 1 << 20, 1 << 30, 1_000_000
CONTEXT = 300 * MIB

SPIN = """
def spin(microseconds, times=1, function=[]):
    function or function.append(kernel(b"spin"))
    import ctypes
    for _ in range(times):
        ok(driver.cuLaunchKernel(function[0], 1, 1, 1, 1, 1, 1, 0, 0, ((microseconds,), (ctypes.c_uint,)), 0))
"""
SAXPY = """
def saxpy(a, x, y, count, function=[]):
    function or function.append(kernel(b"saxpy"))
    import ctypes
    arguments = ((a, int(x), int(y), count), (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint))
    return driver.cuLaunchKernel(function[0], (count + 255) // 256, 1, 1, 256, 1, 1, 0, 0, arguments, 0)
"""
VMM = """
def properties(device=0):
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = device
    wanted.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return wanted

def mapped(handle, size, device=0):
    address = ok(driver.cuMemAddressReserve(size, 0, 0, 0))
    ok(driver.cuMemMap(address, size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(driver.cuMemSetAccess(address, size, [access], 1))
    return address

def text(address, size):
    data = bytearray(size)
    ok(driver.cuMemcpyDtoH(data, address, size))
    return data.decode()
"""


class Running:
    """A program that prints lines and takes lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def line(self) -> str:
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line.strip()

    def tell(self, line: str = "") -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@contextmanager
def running(programs: Programs, *codes: str) -> Iterator[list[Running]]:
    """The programs, each after it printed "ready"; killed at the end."""
    started = [Running(programs.start(code)) for code in codes]
    try:
        for program in started:
            assert program.line() == "ready"
        yield started
    finally:
        for program in started:
            program.process.kill()
            program.process.communicate()


def test_a_kernel_over_memory_that_was_unmapped_faults_and_the_error_sticks(programs: Programs) -> None:
    neighbour = SAXPY + "enter(); x = ok(driver.cuMemAlloc(64)); print('ready', flush=True); input(); ok(saxpy(2.0, x, x, 16))\n"
    neighbour += "ok(driver.cuCtxSynchronize()); print('works', flush=True); input()"
    with running(programs, neighbour) as [other]:
        output = programs.run(
            SPIN
            + SAXPY
            + VMM
            + """
enter()
size = 2 * MIB
handle = ok(driver.cuMemCreate(size, properties(), 0))
address = mapped(handle, size)
ok(saxpy(1.0, address, address, 16))
ok(driver.cuCtxSynchronize())
spin(300_000)
ok(saxpy(1.0, address, address, 16))
ok(driver.cuMemUnmap(address, size))
print(status(driver.cuStreamQuery(0)))  # so the unmapping waited for nothing
print(status(driver.cuCtxSynchronize()))
print(status(driver.cuMemAlloc(1024)))
print(status(driver.cuStreamCreate(0)))
"""
        )
        assert output == ["NOT_READY", "ILLEGAL_ADDRESS", "ILLEGAL_ADDRESS", "ILLEGAL_ADDRESS"]
        other.tell()
        assert other.line() == "works"


def test_a_program_killed_at_work_frees_its_memory_within_100_ms(programs: Programs, simulated: Machine) -> None:
    gpu = simulated.connect()
    code = SPIN + "enter(); ok(driver.cuMemAlloc(8 * GIB)); spin(60_000_000); print('ready', flush=True); ok(driver.cuCtxSynchronize())"
    with running(programs, code) as [program]:
        assert gpu.processes()[program.pid].used == CONTEXT + 8 * GIB
        os.kill(program.pid, signal.SIGKILL)
        began = time.monotonic()
        until(lambda: gpu.used() == 0)
        assert time.monotonic() - began < 0.1


def test_two_programs_that_spin_get_half_the_device_each(programs: Programs, simulated: Machine) -> None:
    gpu = simulated.connect()
    code = SPIN + "enter(); kernel(b'spin'); print('ready', flush=True); input(); spin(20_000, 100); ok(driver.cuCtxSynchronize())\n"
    code += "print('done', flush=True); input()"
    with running(programs, code, code) as contenders:
        pids = [program.pid for program in contenders]

        def busy() -> list[int]:
            states = gpu.processes()
            return [states[pid].busy for pid in pids]

        for program in contenders:
            program.tell()
        until(lambda: min(busy()) > 0)
        before = busy()
        until(lambda: sum(busy()) - sum(before) > 1000 * MS)
        shares = [after - start for after, start in zip(busy(), before, strict=True)]
        # Exact to a slice of 2 ms each.
        assert abs(shares[0] - shares[1]) <= 4 * MS
        for program in contenders:
            assert program.line() == "done"
        assert busy() == [2000 * MS, 2000 * MS]
        assert gpu.call("DeviceState", device=0).busy == 4000 * MS


def test_a_launch_into_a_full_queue_blocks(programs: Programs) -> None:
    assert programs.run(
        SPIN
        + """
enter()
first = ok(driver.cuEventCreate(0))
spin(1_500_000)
ok(driver.cuEventRecord(first, 0))
spin(1, 1022)
print(status(driver.cuEventQuery(first)))
spin(1)
spin(1)
print(driver.cuEventQuery(first)[0].name)
ok(driver.cuCtxSynchronize())
"""
    ) == ["NOT_READY", "CUDA_SUCCESS"]


def test_memory_crosses_processes_by_a_descriptor_and_outlives_its_creator(programs: Programs, simulated: Machine) -> None:
    gpu = simulated.connect()
    creator = (
        VMM
        + """
enter()
handle = ok(driver.cuMemCreate(2 * MIB, properties(), 0))
address = mapped(handle, 2 * MIB)
ok(driver.cuMemcpyHtoD(address, b"from the creator", 16))
kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
descriptor = ok(driver.cuMemExportToShareableHandle(handle, kind, 0))
print("ready", flush=True)
print(int(descriptor), flush=True)
input()
"""
    )
    importer = (
        VMM
        + """
import os
enter()
print("ready", flush=True)
descriptor = os.open(input(), os.O_WRONLY)
kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
handle = ok(driver.cuMemImportFromShareableHandle(descriptor, kind))
os.close(descriptor)
address = mapped(handle, 2 * MIB)
ok(driver.cuMemRelease(handle))
print(text(address, 16), flush=True)
input()
print(text(address, 16), flush=True)
input()
"""
    )
    with running(programs, creator, importer) as [first, second]:
        second.tell(f"/proc/{first.pid}/fd/{first.line()}")
        assert second.line() == "from the creator"
        assert gpu.used() == 2 * CONTEXT + GRANULARITY
        first.process.kill()
        until(lambda: first.pid not in gpu.processes())
        assert gpu.processes()[second.pid].used == CONTEXT + GRANULARITY
        second.tell()
        assert second.line() == "from the creator"


def test_sixteen_gigabytes_cost_no_ram_until_they_are_written(programs: Programs, simulated: Machine) -> None:
    before = simulated.resident()
    code = "enter(); ok(driver.cuMemAlloc(15 * GIB)); enter(1); ok(driver.cuMemAlloc(15 * GIB)); print('ready', flush=True); input()"
    with running(programs, code):
        assert simulated.resident() - before < 32 * MIB


def test_many_programs_at_once_leave_nothing_behind(programs: Programs, simulated: Machine) -> None:
    gpu = simulated.connect()
    code = (
        SAXPY
        + """
import array
enter()
print("ready", flush=True)
for turn in range(50):
    x = ok(driver.cuMemAlloc(4 * 1000))
    ok(driver.cuMemcpyHtoD(x, array.array("f", range(1000)).tobytes(), 4000))
    ok(saxpy(float(turn), x, x, 1000))
    result = array.array("f", bytes(4000))
    ok(driver.cuMemcpyDtoH(result.buffer_info()[0], x, 4000))
    assert list(result) == [(turn + 1.0) * i for i in range(1000)]
    ok(driver.cuMemFree(x))
print("right", flush=True)
input()
"""
    )
    with running(programs, *[code] * 8) as workers:
        for worker in workers:
            assert worker.line() == "right"
        assert [state.used for state in gpu.processes().values()] == [CONTEXT] * 8
    until(lambda: gpu.used() == 0)
