"""The simulated NVML against the device process's own books, through pynvml."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pynvml
import pytest
from elftools.elf.elffile import ELFFile

from jupyter_vgpu.native import locate
from tests.native.shim.test_hooks import real_header
from tests.native.simgpu.conftest import Machine
from tests.native.simgpu.device_client import ROOT
from tests.native.simgpu.programs import Programs
from tests.native.simgpu.simulated_nvml import simulated_nvml
from tests.waiting import until

SOURCES = ROOT / "native" / "simgpu" / "nvml"
MIB, GIB = 1 << 20, 1 << 30
CONTEXT, TOTAL = 300 * MIB, 16 * GIB
SECOND = 1_000_000  # microseconds, as `spin` takes them
NO_INSTANCE = 0xFFFFFFFF


@pytest.fixture
def nvml(simulated: Machine) -> Iterator[ModuleType]:
    with simulated_nvml(socket=simulated.path, spec=simulated.spec) as module:
        module.nvmlInit()
        yield module


def error_of(call, *arguments, **keywords) -> int:
    with pytest.raises(pynvml.NVMLError) as failed:
        call(*arguments, **keywords)
    return failed.value.value


def held(processes) -> dict[int, int]:
    return {process.pid: process.usedGpuMemory for process in processes}


def test_memory_and_processes_equal_the_books(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    first, second = simulated.child(), simulated.child()
    first.do("enter")
    first.do("allocate", GIB)
    second.do("enter")
    second.do("allocate", 3 * MIB)

    used = first.do("used")
    assert used == nvml.nvmlDeviceGetMemoryInfo(device).used
    processes = held(nvml.nvmlDeviceGetComputeRunningProcesses(device))
    assert processes.keys() == {first.pid, second.pid}
    assert processes[first.pid] == CONTEXT + GIB
    assert CONTEXT + 3 * MIB <= processes[second.pid] <= CONTEXT + 4 * MIB
    assert sum(processes.values()) == used


def test_both_versions_of_memory_agree_and_add_up(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    child = simulated.child()
    child.do("enter")
    child.do("allocate", 5 * GIB)
    first, second = nvml.nvmlDeviceGetMemoryInfo(device), nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)
    assert (first.total, first.used, first.free) == (TOTAL, 5 * GIB + CONTEXT, TOTAL - 5 * GIB - CONTEXT)
    assert (second.total, second.used, second.free, second.reserved) == (first.total, first.used, first.free, 0)


def test_a_process_is_only_on_the_device_that_it_uses(simulated: Machine, nvml: ModuleType) -> None:
    child = simulated.child()
    child.do("enter", 1)
    devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    assert [held(nvml.nvmlDeviceGetComputeRunningProcesses(device)) for device in devices] == [{}, {child.pid: CONTEXT}]


def test_a_process_without_a_context_is_not_listed(simulated: Machine, nvml: ModuleType) -> None:
    simulated.child()
    assert nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0)) == []


def test_a_killed_process_leaves_the_list_and_its_memory(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    child = simulated.child()
    child.do("enter")
    child.do("allocate", GIB)
    child.kill()
    until(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(device) == [], within=5)
    assert nvml.nvmlDeviceGetMemoryInfo(device).used == 0


class FirstProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v1_t, which pynvml no longer has."""

    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
@pytest.mark.parametrize("kind", ["Compute", "Graphics", "MPSCompute"])
def test_each_version_of_each_list_has_the_layout_of_its_own(simulated: Machine, nvml: ModuleType, kind: str, version: str) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    child = simulated.child()
    child.do("enter")
    info = pynvml.c_nvmlProcessInfo_v2_t if version else FirstProcessInfo
    function = nvml._nvmlGetFunctionPointer(f"nvmlDeviceGet{kind}RunningProcesses{version}")

    room = (info * 4)()
    count = ctypes.c_uint(4)
    assert function(device, ctypes.byref(count), room) == pynvml.NVML_SUCCESS
    expected = [(child.pid, CONTEXT)] if kind == "Compute" else []
    assert [(one.pid, one.usedGpuMemory) for one in room[: count.value]] == expected
    assert room[count.value].pid == 0, "written past what was counted"
    if version and expected:
        assert (room[0].gpuInstanceId, room[0].computeInstanceId) == (NO_INSTANCE, NO_INSTANCE)


def test_too_little_room_for_processes_says_how_much_is_needed(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    children = [simulated.child() for _ in range(3)]
    for child in children:
        child.do("enter")
    function = nvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
    count, room = ctypes.c_uint(2), (pynvml.c_nvmlProcessInfo_v2_t * 2)()
    assert function(device, ctypes.byref(count), room) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value == 3 and room[0].pid == 0
    assert function(device, None, room) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_detail_list_is_of_the_mode_that_was_asked_for(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    child = simulated.child()
    child.do("enter")
    version = pynvml.nvmlProcessDetailList_v1
    details = [nvml.nvmlDeviceGetRunningProcessDetailList(device, version, mode) for mode in range(3)]
    assert [held(of_mode) for of_mode in details] == [{child.pid: CONTEXT}, {}, {}]
    assert error_of(nvml.nvmlDeviceGetRunningProcessDetailList, device, version, 3) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert error_of(nvml.nvmlDeviceGetRunningProcessDetailList, device, 0, 0) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_utilization_is_the_busy_part_of_the_last_second(simulated: Machine, nvml: ModuleType) -> None:
    busy, idle = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    rest = nvml.nvmlDeviceGetTemperature(busy, 0), nvml.nvmlDeviceGetPowerUsage(busy)
    assert error_of(nvml.nvmlDeviceGetProcessUtilization, busy, 0) == pynvml.NVML_ERROR_NOT_FOUND
    workers = [simulated.child() for _ in range(2)]
    for worker in workers:
        worker.do("enter")
        worker.do("spin", 60 * SECOND)

    until(lambda: nvml.nvmlDeviceGetUtilizationRates(busy).gpu == 100)
    rates = nvml.nvmlDeviceGetUtilizationRates(busy)
    assert (rates.gpu, rates.memory) == (100, 0)
    assert nvml.nvmlDeviceGetUtilizationRates(idle).gpu == 0
    shares = {sample.pid: sample.smUtil for sample in nvml.nvmlDeviceGetProcessUtilization(busy, 0)}
    assert shares == {worker.pid: pytest.approx(50, abs=2) for worker in workers}
    assert shares == {sample.pid: pytest.approx(sample.smUtil, abs=2) for sample in nvml.nvmlDeviceGetProcessesUtilizationInfo(busy, 0)}
    assert nvml.nvmlDeviceGetTemperature(busy, 0) == nvml.nvmlDeviceGetTemperatureV(busy, 0) > rest[0]
    assert rest[1] < nvml.nvmlDeviceGetPowerUsage(busy) <= nvml.nvmlDeviceGetEnforcedPowerLimit(busy)

    for worker in workers:
        worker.kill()
    until(lambda: nvml.nvmlDeviceGetUtilizationRates(busy).gpu == 0)
    assert (nvml.nvmlDeviceGetTemperature(busy, 0), nvml.nvmlDeviceGetPowerUsage(busy)) == rest


def test_copies_and_fills_are_memory_activity(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    filler, spinner = simulated.child(), simulated.child()
    spinner.do("enter")
    spinner.do("spin", 60 * SECOND)
    filler.do("enter")
    address = filler.do("allocate", 8 * GIB)
    for _ in range(400):  # more than a second's half
        filler.do("fill_bytes", address, 8 * GIB, 0)
    until(lambda: nvml.nvmlDeviceGetUtilizationRates(device).memory >= 45)
    until(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu == 100)
    samples = {sample.pid: sample.memUtil for sample in nvml.nvmlDeviceGetProcessUtilization(device, 0)}
    assert samples == {filler.pid: pytest.approx(50, abs=5), spinner.pid: 0}


def test_utilization_samples_are_only_those_after_the_given_time(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    worker = simulated.child()
    worker.do("enter")
    worker.do("spin", 60 * SECOND)
    until(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu == 100)
    (sample,) = nvml.nvmlDeviceGetProcessUtilization(device, 0)
    assert abs(sample.timeStamp - time.time_ns() // 1000) < 5 * SECOND
    assert len(nvml.nvmlDeviceGetProcessUtilization(device, sample.timeStamp)) == 1
    later = sample.timeStamp + 3600 * SECOND
    assert error_of(nvml.nvmlDeviceGetProcessUtilization, device, later) == pynvml.NVML_ERROR_NOT_FOUND
    assert error_of(nvml.nvmlDeviceGetProcessesUtilizationInfo, device, later) == pynvml.NVML_ERROR_NOT_FOUND


def test_a_device_says_that_it_is_simulated_and_how_large(nvml: ModuleType) -> None:
    assert nvml.nvmlDeviceGetCount() == 2
    device = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetName(device) == "Simulated GPU 16 GiB"
    assert (nvml.nvmlDeviceGetIndex(device), nvml.nvmlDeviceGetMinorNumber(device)) == (1, 1)
    assert nvml.nvmlDeviceGetMigMode(device) == [pynvml.NVML_DEVICE_MIG_DISABLE] * 2
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(device) == 0
    assert nvml.nvmlDeviceIsMigDeviceHandle(device).value == 0
    assert nvml.nvmlDeviceGetComputeMode(device) == pynvml.NVML_COMPUTEMODE_DEFAULT


def test_every_way_to_name_a_device_gives_the_same_handle(nvml: ModuleType) -> None:
    for index in range(2):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(device)
        binary = bytes.fromhex(uuid.removeprefix("GPU-").replace("-", ""))
        pci = nvml.nvmlDeviceGetPciInfo(device)
        assert (pci.domain, pci.bus) == (0, index + 1)
        legacy = pci.busIdLegacy if isinstance(pci.busIdLegacy, str) else pci.busIdLegacy.decode()
        again = [
            nvml.nvmlDeviceGetHandleByUUID(uuid),
            nvml.nvmlDeviceGetHandleByUUID(uuid.upper().replace("GPU", "gpu")),
            by_uuid_struct(nvml, pynvml.NVML_UUID_TYPE_ASCII, uuid.encode()),
            by_uuid_struct(nvml, pynvml.NVML_UUID_TYPE_BINARY, binary),
            nvml.nvmlDeviceGetHandleByPciBusId(pci.busId),
            nvml.nvmlDeviceGetHandleByPciBusId(legacy),
        ]
        assert [nvml.nvmlDeviceGetIndex(handle) for handle in again] == [index] * len(again)


def by_uuid_struct(nvml: ModuleType, kind: int, value: bytes):
    uuid = pynvml.c_nvmlUUID_t()
    uuid.version = ctypes.sizeof(uuid) | 1 << 24
    uuid.type = kind
    if kind == pynvml.NVML_UUID_TYPE_ASCII:
        uuid.value.str = value
    else:
        ctypes.memmove(ctypes.byref(uuid.value), value, len(value))
    device = pynvml.c_nvmlDevice_t()
    status = nvml._nvmlGetFunctionPointer("nvmlDeviceGetHandleByUUIDV")(ctypes.byref(uuid), ctypes.byref(device))
    if status != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(status)
    return device


def test_uuids_are_the_device_processes_own(simulated: Machine, nvml: ModuleType) -> None:
    described = [bytes(device.uuid).hex() for device in simulated.connect(program=program_of_this_process()).hello.device[:2]]
    devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    assert [nvml.nvmlDeviceGetUUID(device).removeprefix("GPU-").replace("-", "") for device in devices] == described


def program_of_this_process() -> int:
    """HelloRequest.program, so that the protocol's connection and the library's are one client."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_void_p, [ctypes.c_ulong]
    at_random = 25
    return ctypes.c_uint32.from_address(getauxval(at_random)).value


def test_what_is_not_there_is_refused_with_nvmls_own_errors(nvml: ModuleType) -> None:
    assert error_of(nvml.nvmlDeviceGetHandleByIndex, 2) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    for uuid in ("GPU-nonsense", "", "GPU-00000000-0000-0000-0000-000000000000"):
        assert error_of(nvml.nvmlDeviceGetHandleByUUID, uuid) == pynvml.NVML_ERROR_NOT_FOUND
    assert error_of(by_uuid_struct, nvml, pynvml.NVML_UUID_TYPE_BINARY, bytes(16)) == pynvml.NVML_ERROR_NOT_FOUND
    assert error_of(by_uuid_struct, nvml, 3, bytes(16)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    for bus in ("00000000:03:00.0", "0001:01:00.0", "nonsense", ""):
        assert error_of(nvml.nvmlDeviceGetHandleByPciBusId, bus) == pynvml.NVML_ERROR_NOT_FOUND
    nobodys = ctypes.cast(ctypes.c_void_p(0x1000), pynvml.c_nvmlDevice_t)
    for handle in (nobodys, None):
        assert error_of(nvml.nvmlDeviceGetMemoryInfo, handle) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    assert error_of(nvml.nvmlDeviceGetMemoryInfo, device, version=1) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert error_of(nvml.nvmlDeviceGetTemperature, device, 1) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert error_of(nvml.nvmlDeviceGetFanSpeed, device) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    short = ctypes.create_string_buffer(len("Simulated GPU 16 GiB"))
    name = nvml._nvmlGetFunctionPointer("nvmlDeviceGetName")
    assert name(device, short, len(short)) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE and short.raw == bytes(len(short))


def test_versions_are_those_of_one_driver(nvml: ModuleType) -> None:
    assert nvml.nvmlSystemGetCudaDriverVersion() == nvml.nvmlSystemGetCudaDriverVersion_v2() == 13000
    driver = nvml.nvmlSystemGetDriverVersion()
    assert re.fullmatch(r"\d+(\.\d+)+", driver)
    assert nvml.nvmlSystemGetNVMLVersion() == f"13.{driver}"


def test_a_process_is_named_by_its_program(nvml: ModuleType) -> None:
    with open("/proc/self/cmdline", "rb") as file:
        program = file.read().split(b"\0")[0].decode()
    assert nvml.nvmlSystemGetProcessName(os.getpid()) == program
    assert error_of(nvml.nvmlSystemGetProcessName, 2**31 - 1) == pynvml.NVML_ERROR_NOT_FOUND


def test_each_error_has_a_text_of_its_own(nvml: ModuleType) -> None:
    codes = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    unknown = nvml.nvmlErrorString(pynvml.NVML_ERROR_UNKNOWN)
    own = {code: nvml.nvmlErrorString(code) for code in (codes | {pynvml.NVML_SUCCESS}) - {pynvml.NVML_ERROR_UNKNOWN}}
    assert len(own) > 20 and len({unknown, *own.values()}) == len(own) + 1
    assert nvml.nvmlErrorString(12345) == unknown
    assert str(pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)) == "Not Found"


def test_nothing_is_answered_before_the_first_init_and_after_the_last_shutdown(simulated: Machine) -> None:
    with simulated_nvml(socket=simulated.path, spec=simulated.spec) as nvml:
        assert error_of(nvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
        assert error_of(nvml.nvmlShutdown) == pynvml.NVML_ERROR_UNINITIALIZED
        nvml.nvmlInit()
        nvml.nvmlInit()
        device = nvml.nvmlDeviceGetHandleByIndex(0)
        nvml.nvmlShutdown()
        assert nvml.nvmlDeviceGetMemoryInfo(device).total == TOTAL
        nvml.nvmlShutdown()
        assert error_of(nvml.nvmlDeviceGetMemoryInfo, device) == pynvml.NVML_ERROR_UNINITIALIZED
        assert error_of(nvml.nvmlInitWithFlags, 1 << 7) == pynvml.NVML_ERROR_INVALID_ARGUMENT


@pytest.mark.parametrize("spec, said", [("", ""), ("2x16GB", '"2x16GB"')])
def test_without_simulated_devices_the_driver_is_not_loaded(simulated: Machine, capfd, spec: str, said: str) -> None:
    with simulated_nvml(socket=simulated.path.with_name("other.sock"), spec=spec) as nvml:
        assert error_of(nvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    errors = capfd.readouterr().err
    assert said in errors and bool(said) == bool(errors)


def test_a_device_process_that_died_is_a_driver_that_is_not_loaded_until_the_next_init(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    uuid = nvml.nvmlDeviceGetUUID(device)
    os.kill(simulated.pid, signal.SIGKILL)
    until(lambda: not simulated.running())
    for _ in range(2):
        assert error_of(nvml.nvmlDeviceGetMemoryInfo, device) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    nvml.nvmlShutdown()
    simulated.start()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid)).used == 0


def test_threads_ask_at_the_same_time(simulated: Machine, nvml: ModuleType) -> None:
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    child = simulated.child()
    child.do("enter")
    answers: list[tuple[int, dict[int, int]]] = []

    def ask() -> None:
        for _ in range(200):
            answers.append((nvml.nvmlDeviceGetMemoryInfo(device).used, held(nvml.nvmlDeviceGetComputeRunningProcesses(device))))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [(CONTEXT, {child.pid: CONTEXT})] * 1600


def test_nvml_goes_on_in_a_forked_child_as_programs_rely_on(programs: Programs) -> None:
    lines = programs.run("""
        import os, pynvml
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        child = os.fork()
        used = pynvml.nvmlDeviceGetMemoryInfo(device).used
        if child == 0:
            enter()
            used = pynvml.nvmlDeviceGetMemoryInfo(device).used
            pids = [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]
            print(used == 300 * MIB, pids == [os.getpid()], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(used >= 0, pynvml.nvmlDeviceGetCount())
    """)
    assert lines == ["True True", "True 2"]


@pytest.mark.parametrize("order", ["init(); enter()", "enter(); init()"])
def test_cuda_and_nvml_in_one_program_agree(programs: Programs, order: str) -> None:
    lines = programs.run(f"""
        import os, pynvml
        from pynvml import nvmlInit as init
        {order}
        pointer = ok(driver.cuMemAlloc(GIB))
        free, total = ok(driver.cuMemGetInfo())
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        print((memory.free, memory.total) == (free, total))
        print(process.pid == os.getpid(), process.usedGpuMemory == memory.used == total - free)
        print(pynvml.nvmlDeviceGetName(device) == ok(driver.cuDeviceGetName(100, 0)).split(b"\\0")[0].decode())
        uuid = bytes(ok(driver.cuDeviceGetUuid(0)).bytes).hex()
        print(pynvml.nvmlDeviceGetUUID(device).removeprefix("GPU-").replace("-", "") == uuid)
        print(pynvml.nvmlDeviceGetCudaComputeCapability(device) == ok(driver.cuDeviceComputeCapability(0)))
        print(pynvml.nvmlSystemGetCudaDriverVersion() == ok(driver.cuDriverGetVersion()))
        print(pynvml.nvmlDeviceGetPciInfo(device).busIdLegacy == ok(driver.cuDeviceGetPCIBusId(20, 0)).split(b"\\0")[0].decode())
        print(pynvml.nvmlDeviceGetClockInfo(device, 1) * 1000 == ok(driver.cuDeviceGetAttribute(
            driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 0)))
        pynvml.nvmlShutdown()
        ok(driver.cuMemFree(pointer))
        print(ok(driver.cuMemGetInfo()) == (free + GIB, total))
    """)
    assert lines == ["True", "True True"] + ["True"] * 7


def test_library_exports_its_list_and_nothing_else() -> None:
    listed = re.findall(r"^VGPU_SIM_NVML\((\w+)", (SOURCES / "functions.def").read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed)) > 50
    with locate.library(locate.SIM_NVML).open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        exported = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name}
    assert exported == {*listed, "nvmlErrorString"}


def test_every_function_has_the_type_of_a_real_header(tmp_path: Path) -> None:
    source = tmp_path / "types.cpp"
    source.write_text("""
        #define NVML_NO_UNVERSIONED_FUNC_DEFS
        #include "nvml.h"
        #include <type_traits>
        #define VGPU_SIM_NVML(symbol, parameters) static_assert(std::is_same_v<decltype(&symbol), nvmlReturn_t (*) parameters>, #symbol);
        #include "functions.def"
    """)
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-std=c++17", "-fsyntax-only", f"-I{real_header('nvml.h').parent}", f"-I{SOURCES}", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
