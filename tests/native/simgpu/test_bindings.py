"""The simulated driver under cuda-bindings: what a CUDA program sees and does, and what it gets when it is wrong."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import tempfile
from pathlib import Path

import pytest

from tests.native.simgpu.programs import Programs

GIB = 1024**3
CONTEXT = 300 * 1024**2


def test_devices_present_themselves_as_simulated(programs):
    lines = programs.run("""
        ok(driver.cuInit(0))
        print(ok(driver.cuDriverGetVersion()), ok(driver.cuDeviceGetCount()))
        for ordinal in range(2):
            device = ok(driver.cuDeviceGet(ordinal))
            name = ok(driver.cuDeviceGetName(64, device)).split(b"\\0")[0].decode()
            major = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
            bus = ok(driver.cuDeviceGetPCIBusId(32, device)).split(b"\\0")[0].decode()
            assert int(ok(driver.cuDeviceGetByPCIBusId(bus.encode()))) == ordinal
            print(name, ok(driver.cuDeviceTotalMem(device)), ok(driver.cuDeviceGetAttribute(major, device)), bus)
    """)
    assert lines == [
        "13000 2",
        f"Simulated GPU 16 GiB {16 * GIB} 9 0000:01:00.0",
        f"Simulated GPU 16 GiB {16 * GIB} 9 0000:02:00.0",
    ]


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, [0, 1]),
        ("1,0", [1, 0]),
        ("1", [1]),
        ("0,7,1", [0]),
        ("1,nonsense,0", [1]),
        (" 1 , 0 ", [1, 0]),
        ("0,0,1", [0]),
        ("{1}", [1]),
        ("{1:12},0", [1, 0]),
        ("GPU-", None),
        ("", None),
        ("-1", None),
    ],
)
def test_cuda_visible_devices_is_read_as_the_driver_reads_it(programs, simulated, visible, seen):
    uuids = [bytes(device.uuid).hex() for device in simulated.connect().hello.device[:2]]
    texts = [f"GPU-{u[:8]}-{u[8:12]}-{u[12:16]}-{u[16:20]}-{u[20:]}" for u in uuids]
    variables = {}
    if visible is not None:
        variables["CUDA_VISIBLE_DEVICES"] = visible.replace("{1}", texts[1]).replace("{1:12}", texts[1][:12])
    lines = programs.run(
        """
        print(status(driver.cuInit(0)))
        for ordinal in range(driver.cuDeviceGetCount()[1] or 0):
            print(bytes(ok(driver.cuDeviceGetUuid(ordinal)).bytes).hex())
        """,
        **variables,
    )
    if seen is None:
        assert lines == ["NO_DEVICE"]
    else:
        assert lines == ["CUDA_SUCCESS"] + [uuids[index] for index in seen]


def test_memory_is_counted_to_the_byte_and_denied_beyond_the_device(programs):
    lines = programs.run("""
        enter()
        before, total = ok(driver.cuMemGetInfo())
        print(total, total - before)
        one = ok(driver.cuMemAlloc(4 * GIB))
        print(before - ok(driver.cuMemGetInfo())[0] == 4 * GIB)
        print(status(driver.cuMemAlloc(12 * GIB)), status(driver.cuMemAlloc(2**62)), status(driver.cuMemAlloc(0)))
        base, size = ok(driver.cuMemGetAddressRange(int(one) + 4096))
        print(int(base) == int(one), size == 4 * GIB)
        ok(driver.cuMemFree(one))
        print(before == ok(driver.cuMemGetInfo())[0], status(driver.cuMemFree(one)), status(driver.cuMemFree(0)))
    """)
    assert lines == [
        f"{16 * GIB} {CONTEXT}",
        "True",
        "OUT_OF_MEMORY OUT_OF_MEMORY INVALID_VALUE",
        "True True",
        "True INVALID_VALUE CUDA_SUCCESS",
    ]


def test_kernels_of_the_demo_compute(programs):
    lines = programs.run("""
        import ctypes
        from array import array
        enter()
        count = 1000
        x, y, z = (ok(driver.cuMemAlloc(4 * count)) for _ in range(3))
        F, P, U = ctypes.c_float, ctypes.c_void_p, ctypes.c_uint
        def launch(name, types, *values):
            values = [int(v) if t is P else v for t, v in zip(types, values)]
            ok(driver.cuLaunchKernel(kernel(name), 4, 1, 1, 256, 1, 1, 0, 0, (tuple(values), types), 0))
        def read(buffer):
            values = array("f", bytes(4 * count))
            ok(driver.cuMemcpyDtoH(values.buffer_info()[0], buffer, 4 * count))
            return set(values)
        launch(b"fill", (P, F, U), x, 3.0, count)
        launch(b"fill", (P, F, U), y, 10.0, count)
        launch(b"saxpy", (F, P, P, U), 2.0, x, y, count)
        launch(b"add", (P, P, P, U), x, y, z, count)
        launch(b"scale", (F, P, U), 0.5, x, count)
        print(read(x), read(y), read(z))
    """)
    assert lines == ["{1.5} {16.0} {19.0}"]


def test_parameters_can_come_as_one_buffer_and_through_a_library(programs):
    lines = programs.run("""
        import ctypes, struct
        enter()
        x = ok(driver.cuMemAlloc(16))
        library = ok(driver.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0))
        fill = ok(driver.cuLibraryGetKernel(library, b"fill"))
        print(ok(driver.cuLibraryGetKernelCount(library)), ok(driver.cuKernelGetName(fill)).decode())
        print([ok(driver.cuKernelGetParamInfo(fill, i)) for i in range(3)], status(driver.cuKernelGetParamInfo(fill, 3)))
        buffer = ctypes.create_string_buffer(struct.pack("QfI", int(x), 7.0, 4))
        size = ctypes.c_size_t(16)
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
        function = ok(driver.cuKernelGetFunction(fill))
        ok(driver.cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, 0, 0, ctypes.addressof(extra)))
        out = bytearray(16)
        ok(driver.cuMemcpyDtoH(out, x, 16))
        print(struct.unpack("4f", out))
        ok(driver.cuLibraryUnload(library))
        print(status(driver.cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, 0, 0, ctypes.addressof(extra))))
    """)
    assert lines == ["5 fill", "[(0, 8), (8, 4), (12, 4)] INVALID_VALUE", "(7.0, 7.0, 7.0, 7.0)", "INVALID_HANDLE"]


def test_an_unknown_kernel_loads_and_its_launch_says_why_not(programs):
    output, errors = programs.result("""
        enter()
        text = b".version 8.0 .target sm_75 .address_size 64 " \\
            b".entry mine(.param .u64 .ptr .align 1 a, .param .align 16 .b8 s[40], .param .u8 c) { ret; } " \\
            b".entry saxpy(.param .u64 a) { ret; }\\0"
        module = ok(driver.cuModuleLoadData(text))
        mine = ok(driver.cuModuleGetFunction(module, b"mine"))
        print([ok(driver.cuFuncGetParamInfo(mine, i)) for i in range(3)])
        print(status(driver.cuModuleGetFunction(module, b"theirs")))
        for name in (b"mine", b"saxpy"):
            import ctypes
            values = (ctypes.c_void_p * 3)(*[ctypes.addressof(ctypes.create_string_buffer(64))] * 3)
            function = ok(driver.cuModuleGetFunction(module, name))
            print(status(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(values), 0)))
        ok(driver.cuCtxSynchronize())
    """)
    assert output.splitlines() == ["[(0, 8), (16, 40), (56, 1)]", "NOT_FOUND", "NOT_SUPPORTED", "NOT_SUPPORTED"]
    assert 'kernel "mine" cannot run' in errors and 'kernel "saxpy" cannot run' in errors


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (b"\x7fELF" + bytes(60), "NO_BINARY_FOR_GPU"),
        (b"\x50\xed\x55\xba" + bytes(60), "NO_BINARY_FOR_GPU"),
        (b"int main() {}\0", "INVALID_PTX"),
        (b"\0", "INVALID_PTX"),
        (b".version 8.0 .target sm_75 .entry broken(.param .u64 a", "INVALID_PTX"),
    ],
)
def test_what_is_no_ptx_is_refused(programs, image, expected):
    assert programs.run(f"enter(); print(status(driver.cuModuleLoadData({image + bytes(1)!r})))") == [expected]


@pytest.mark.parametrize("size", [1, 4095, 64 * 1024, 64 * 1024 + 1, 8 * 1024**2, 20 * 1024**2 + 3])
def test_copies_of_every_way_through_keep_the_bytes(programs, size):
    lines = programs.run(f"""
        import ctypes, os
        enter()
        size = {size}
        data, back, again = os.urandom(size), bytearray(size), bytearray(size)
        a, b = ok(driver.cuMemAlloc(size)), ok(driver.cuMemAlloc(size))
        stream = ok(driver.cuStreamCreate(1))
        ok(driver.cuMemcpyHtoD(a, data, size))
        ok(driver.cuMemcpyDtoD(b, a, size))
        ok(driver.cuMemcpyDtoH(back, b, size))
        print(back == data)
        pinned = ok(driver.cuMemHostAlloc(size, 0))
        ctypes.memmove(pinned, data[::-1], size)
        ok(driver.cuMemcpyHtoDAsync(a, pinned, size, stream))
        ok(driver.cuMemcpyAsync(b, a, size, stream))
        ctypes_back = ok(driver.cuMemHostAlloc(size, 0))
        ok(driver.cuMemcpyDtoHAsync(ctypes_back, b, size, stream))
        ok(driver.cuStreamSynchronize(stream))
        print(ctypes.string_at(ctypes_back, size) == data[::-1])
        managed = ok(driver.cuMemAllocManaged(size, 1))
        ok(driver.cuMemcpy(managed, b, size))
        print(ctypes.string_at(int(managed), size) == data[::-1])
        ok(driver.cuMemsetD8(managed, 7, size))
        print(ctypes.string_at(int(managed), size) == bytes([7]) * size)
        for memory in (a, b, managed): ok(driver.cuMemFree(memory))
        for memory in (pinned, ctypes_back): ok(driver.cuMemFreeHost(memory))
    """)
    assert lines == ["True"] * 4


def test_rectangles_are_copied_and_filled_row_by_row(programs):
    lines = programs.run("""
        enter()
        width, height = 100_000, 300
        memory, pitch = ok(driver.cuMemAllocPitch(width, height, 4))
        print(pitch % 512, pitch >= width)
        data = bytes(range(250)) * (width * height // 250)
        copy = driver.CUDA_MEMCPY2D()
        copy.srcMemoryType, copy.srcHost, copy.srcPitch = driver.CUmemorytype.CU_MEMORYTYPE_HOST, data, width
        copy.dstMemoryType, copy.dstDevice, copy.dstPitch = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE, memory, pitch
        copy.WidthInBytes, copy.Height = width, height
        ok(driver.cuMemcpy2D(copy))
        ok(driver.cuMemsetD2D16(int(memory) + 10, pitch, 0x4142, 5, height))
        out = bytearray(width * height)
        back = driver.CUDA_MEMCPY2D()
        back.srcMemoryType, back.srcDevice, back.srcPitch = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE, memory, pitch
        back.dstMemoryType, back.dstHost, back.dstPitch = driver.CUmemorytype.CU_MEMORYTYPE_HOST, out, width
        back.WidthInBytes, back.Height = width, height
        ok(driver.cuMemcpy2D(back))
        expected = bytearray(data)
        for row in range(height):
            expected[row * width + 10 : row * width + 20] = b"BA" * 5
        print(out == expected)
    """)
    assert lines == ["0 True", "True"]


def test_an_unmapped_access_is_a_sticky_error_of_its_context_alone(programs):
    lines = programs.run("""
        import ctypes
        first = enter()
        spare = ok(driver.cuMemAlloc(16))
        fill = kernel(b"fill")
        values = ((0xdead0000, 1.0, 4), (ctypes.c_void_p, ctypes.c_float, ctypes.c_uint))
        ok(driver.cuLaunchKernel(fill, 1, 1, 1, 4, 1, 1, 0, 0, values, 0))
        print(status(driver.cuCtxSynchronize()), status(driver.cuMemAlloc(16)), status(driver.cuMemcpyHtoD(spare, b"1234", 4)))
        second = ok(driver.cuCtxCreate(None, 0, 1))
        print(status(driver.cuMemAlloc(16)), status(driver.cuCtxSynchronize()))
        ok(driver.cuCtxDestroy(second))
        print(status(driver.cuCtxSynchronize()))
        ok(driver.cuDevicePrimaryCtxReset(0))
        print(status(driver.cuMemAlloc(16)))
    """)
    assert lines == ["ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS", "CUDA_SUCCESS CUDA_SUCCESS", "ILLEGAL_ADDRESS", "CUDA_SUCCESS"]


def test_the_host_cannot_touch_device_memory(programs):
    process = programs.start("enter(); import ctypes; ctypes.string_at(int(ok(driver.cuMemAlloc(16))), 1)")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGSEGV


def test_virtual_memory_is_reserved_mapped_shared_and_given_back(programs):
    lines = programs.run("""
        enter()
        free = lambda: ok(driver.cuMemGetInfo())[0]
        before = free()
        prop = driver.CUmemAllocationProp()
        prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = 0
        prop.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        access = driver.CUmemAccessDesc()
        access.location = prop.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        size = ok(driver.cuMemGetAllocationGranularity(prop, driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
        address = ok(driver.cuMemAddressReserve(2 * size, 0, 0, 0))
        handle = ok(driver.cuMemCreate(size, prop, 0))
        print(size, before - free() == size, status(driver.cuMemCreate(size + 1, prop, 0)))
        print(status(driver.cuMemcpyHtoD(address, b"1234", 4)))
        ok(driver.cuMemMap(address, size, 0, handle, 0))
        ok(driver.cuMemSetAccess(address, size, [access], 1))
        print(ok(driver.cuMemGetAccess(prop.location, address)))
        ok(driver.cuMemcpyHtoD(address, b"1234", 4))
        fd = ok(driver.cuMemExportToShareableHandle(handle, prop.requestedHandleTypes, 0))
        imported = ok(driver.cuMemImportFromShareableHandle(fd, prop.requestedHandleTypes))
        second = int(address) + size
        ok(driver.cuMemMap(second, size, 0, imported, 0))
        ok(driver.cuMemSetAccess(second, size, [access], 1))
        back = bytearray(4)
        ok(driver.cuMemcpyDtoH(back, second, 4))
        print(bytes(back), before - free() == size, ok(driver.cuMemGetAllocationPropertiesFromHandle(imported)).location.id)
        for part in (address, second): ok(driver.cuMemUnmap(part, size))
        for part in (handle, imported): ok(driver.cuMemRelease(part))
        import os; os.close(fd)
        ok(driver.cuMemAddressFree(address, 2 * size))
        print(free() == before)
    """)
    assert lines == ["2097152 True INVALID_VALUE", "INVALID_VALUE", "3", "b'1234' True 0", "True"]


def test_streams_events_and_host_functions_follow_the_devices_time(programs):
    lines = programs.run("""
        import ctypes, threading, time
        enter()
        spin = kernel(b"spin")
        stream, other = ok(driver.cuStreamCreate(1)), ok(driver.cuStreamCreateWithPriority(1, -3))
        print(ok(driver.cuStreamGetPriority(other)), ok(driver.cuStreamGetFlags(stream)), int(ok(driver.cuStreamGetDevice(stream))))
        start, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
        # Holds the stream until all is queued, so that the times are the device's alone.
        gate = threading.Event()
        wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda argument: gate.wait())
        ok(driver.cuLaunchHostFunc(stream, driver.CUhostFn(ctypes.cast(wait, ctypes.c_void_p).value), 0))
        ok(driver.cuEventRecord(start, stream))
        ok(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, ((30_000,), (ctypes.c_uint,)), 0))
        ok(driver.cuEventRecord(end, stream))
        print(status(driver.cuStreamQuery(stream)), status(driver.cuEventQuery(end)))
        ok(driver.cuStreamWaitEvent(other, end, 0))
        called = []
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda argument: called.append((argument, threading.get_ident())))
        ok(driver.cuLaunchHostFunc(other, driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 42))
        gate.set()
        ok(driver.cuStreamSynchronize(other))
        print([argument for argument, _ in called], called[0][1] != threading.get_ident(), status(driver.cuEventQuery(end)))
        print(round(ok(driver.cuEventElapsedTime(start, end)), 3))
        ok(driver.cuStreamDestroy(stream))
        print(status(driver.cuStreamSynchronize(stream)))
    """)
    assert lines == ["-3 1 0", "NOT_READY NOT_READY", "[42] True CUDA_SUCCESS", "30.0", "INVALID_HANDLE"]


def test_pool_allocations_are_ordered_by_their_stream(programs):
    lines = programs.run("""
        enter()
        free = lambda: ok(driver.cuMemGetInfo())[0]
        before = free()
        stream = ok(driver.cuStreamCreate(1))
        pool = ok(driver.cuDeviceGetDefaultMemPool(0))
        one, two = ok(driver.cuMemAllocAsync(GIB, stream)), ok(driver.cuMemAllocFromPoolAsync(GIB, pool, stream))
        used = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        print(before - free() == 2 * GIB, int(ok(driver.cuMemPoolGetAttribute(pool, used))) == 2 * GIB)
        ok(driver.cuMemFreeAsync(one, stream))
        ok(driver.cuMemFreeAsync(two, stream))
        ok(driver.cuStreamSynchronize(stream))
        print(free() == before, int(ok(driver.cuMemPoolGetAttribute(pool, used))))
    """)
    assert lines == ["True True", "True 0"]


def test_pointer_attributes_tell_what_an_address_is(programs):
    lines = programs.run("""
        context = enter(1)
        A = driver.CUpointer_attribute
        device, managed, pinned = ok(driver.cuMemAlloc(GIB)), ok(driver.cuMemAllocManaged(4096, 1)), ok(driver.cuMemHostAlloc(4096, 0))
        for address in (int(device) + 5, int(managed), int(pinned)):
            get = lambda which: ok(driver.cuPointerGetAttribute(which, address))
            print(int(get(A.CU_POINTER_ATTRIBUTE_MEMORY_TYPE)), end=" ")
            print(get(A.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), int(get(A.CU_POINTER_ATTRIBUTE_IS_MANAGED)))
        base = ok(driver.cuPointerGetAttribute(A.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, int(device) + 5))
        print(int(base) == int(device), int(ok(driver.cuPointerGetAttribute(A.CU_POINTER_ATTRIBUTE_CONTEXT, device))) == int(context))
        print(status(driver.cuPointerGetAttribute(A.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, id(context))))
    """)
    assert lines == ["2 1 0", "2 1 1", "1 1 0", "True True", "INVALID_VALUE"]


def test_what_a_kernel_and_a_device_allow_fits_together(programs):
    lines = programs.run("""
        enter()
        fill = kernel(b"fill")
        attribute = lambda name: ok(driver.cuDeviceGetAttribute(getattr(driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name), 0))
        blocks = ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(fill, 256, 0))
        print(blocks * 256 == attribute("MAX_THREADS_PER_MULTIPROCESSOR"))
        grid, block = ok(driver.cuOccupancyMaxPotentialBlockSize(fill, driver.CUoccupancyB2DSize(0), 0, 0))
        print(grid * block == attribute("MAX_THREADS_PER_MULTIPROCESSOR") * attribute("MULTIPROCESSOR_COUNT"))
        threads = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        print(ok(driver.cuFuncGetAttribute(threads, fill)) == attribute("MAX_THREADS_PER_BLOCK"))
        for size in ((1025, 1, 1), (32, 33, 1), (0, 1, 1), (1, 1, 65)):
            print(status(driver.cuLaunchKernel(fill, 1, 1, 1, *size, 0, 0, 0, 0)), end=" ")
    """)
    assert lines == ["True", "True", "True", "INVALID_VALUE " * 4]


def test_calls_before_init_and_without_a_context_get_the_drivers_errors(programs):
    lines = programs.run("""
        print(status(driver.cuMemAlloc(16)), status(driver.cuDeviceGetCount()), status(driver.cuInit(1)))
        ok(driver.cuInit(0))
        print(status(driver.cuMemAlloc(16)), status(driver.cuDeviceGet(2)), status(driver.cuDeviceGet(-1)))
        print(status(driver.cuCtxSetCurrent(12345)), status(driver.cuCtxPopCurrent()), status(driver.cuModuleUnload(12345)))
    """)
    assert lines == [
        "NOT_INITIALIZED NOT_INITIALIZED INVALID_VALUE",
        "INVALID_CONTEXT INVALID_DEVICE INVALID_DEVICE",
        "INVALID_CONTEXT INVALID_CONTEXT INVALID_HANDLE",
    ]


def test_a_child_forked_after_init_is_not_initialised_and_the_parent_works_on(programs):
    lines = programs.run("""
        import os
        enter()
        one = ok(driver.cuMemAlloc(GIB))
        child = os.fork()
        if child == 0:
            print(status(driver.cuInit(0)), status(driver.cuMemAlloc(16)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        ok(driver.cuMemFree(one))
        print(ok(driver.cuMemGetInfo())[0] == 16 * GIB - 300 * MIB)
    """)
    assert lines == ["NOT_INITIALIZED NOT_INITIALIZED", "True"]


def test_a_child_forked_before_init_is_a_client_of_its_own(programs):
    lines = programs.run("""
        import os
        child = os.fork()
        enter()
        if child == 0:
            ok(driver.cuMemAlloc(GIB))
            os._exit(0)
        os.waitpid(child, 0)
        while ok(driver.cuMemGetInfo())[0] != 16 * GIB - 300 * MIB:
            pass
        print("freed")
    """)
    assert lines == ["freed"]


def test_versions_and_stream_variants_are_found_as_asked_for(programs):
    lines = programs.run("""
        import ctypes
        cuda = ctypes.CDLL("libcuda.so.1")
        def find(name, version, flags=0):
            function, outcome = ctypes.c_void_p(), ctypes.c_int()
            error = cuda.cuGetProcAddress_v2(name, ctypes.byref(function), version, ctypes.c_uint64(flags), ctypes.byref(outcome))
            names = ("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemcpyHtoD_v2_ptds")
            found = [one for one in names if ctypes.cast(getattr(cuda, one), ctypes.c_void_p).value == function.value]
            return error, outcome.value, *found
        print(find(b"cuCtxCreate", 3020), find(b"cuCtxCreate", 12040), find(b"cuCtxCreate", 13000))
        print(find(b"cuLaunchKernel", 13000), find(b"cuLaunchKernel", 13000, 2), find(b"cuMemcpyHtoD", 13000, 2))
        print(find(b"cuCtxCreate", 2000), find(b"cuGraphLaunch", 13000), find(b"cuInit", 13010)[0])
        print(cuda.cuGetProcAddress(b"cuGraphLaunch", ctypes.byref(ctypes.c_void_p()), 13000, ctypes.c_uint64(0)))
    """)
    assert lines == [
        "(0, 0, 'cuCtxCreate_v2') (0, 0, 'cuCtxCreate_v3') (0, 0, 'cuCtxCreate_v4')",
        "(0, 0, 'cuLaunchKernel') (0, 0, 'cuLaunchKernel_ptsz') (0, 0, 'cuMemcpyHtoD_v2_ptds')",
        "(0, 2) (0, 1) 1",
        "500",
    ]


def test_a_threads_own_default_stream_does_not_wait_for_another_threads(programs):
    lines = programs.run("""
        import ctypes, threading, time
        context = enter()
        spin = kernel(b"spin")
        own = driver.CUstream(2)  # CU_STREAM_PER_THREAD
        ok(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, own, ((60_000_000,), (ctypes.c_uint,)), 0))
        def work():
            ok(driver.cuCtxSetCurrent(context))
            ok(driver.cuStreamSynchronize(own))
            print(status(driver.cuStreamQuery(own)))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        print(status(driver.cuStreamQuery(own)))
    """)
    assert lines == ["CUDA_SUCCESS", "NOT_READY"]


def test_threads_work_at_the_same_time_and_a_fork_among_them_does_no_harm(programs):
    lines = programs.run("""
        import os, threading
        context = enter()
        failures = []
        def work(seed):
            try:
                ok(driver.cuCtxSetCurrent(context))
                stream = ok(driver.cuStreamCreate(1))
                for turn in range(30):
                    data = bytes([seed * 30 + turn & 255]) * (seed * 40_000 + 1)
                    memory, back = ok(driver.cuMemAlloc(len(data))), bytearray(len(data))
                    ok(driver.cuMemcpyHtoDAsync(memory, data, len(data), stream))
                    ok(driver.cuMemcpyDtoHAsync(back, memory, len(data), stream))
                    ok(driver.cuStreamSynchronize(stream))
                    assert back == data
                    ok(driver.cuMemFree(memory))
            except BaseException as error:
                failures.append(repr(error))
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads: thread.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if driver.cuMemGetInfo()[0] == CUresult.CUDA_ERROR_NOT_INITIALIZED else 1)
            print(os.waitpid(child, 0)[1])
        for thread in threads: thread.join()
        print(failures, ok(driver.cuMemGetInfo())[0] == 16 * GIB - 300 * MIB)
    """)
    assert lines == ["0"] * 5 + ["[] True"]


@pytest.fixture
def alone():
    """Programs whose device process is started by the first of them, and ended after the test."""
    directory = Path(tempfile.mkdtemp(prefix="vgpu-sim-"))
    path = directory / "gpu.sock"
    try:
        yield Programs(directory, socket=path, spec="16GiB,8GiB,context=64MiB")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            os.kill(struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0], signal.SIGKILL)
    finally:
        shutil.rmtree(directory)


def test_many_first_programs_start_one_device_process(alone):
    code = "enter(); print(ok(driver.cuDeviceGetCount()), flush=True); sys.stdin.read()"
    processes = [alone.start(code) for _ in range(8)]
    try:
        assert [process.stdout.readline() for process in processes] == ["2\n"] * 8
        assert alone.run("enter(); print(ok(driver.cuMemGetInfo()))") == [str((16 * GIB - 9 * 64 * 1024**2, 16 * GIB))]
    finally:
        for process in processes:
            process.communicate(timeout=60)


def test_the_device_process_holds_none_of_its_starters_files(alone):
    process = alone.start("enter(); print('ready', flush=True)")
    # Ends of file on all pipes, although the device process lives on.
    output, errors = process.communicate(timeout=10)
    assert (output, errors) == ("ready\n", "")


@pytest.mark.parametrize(
    ("variables", "expected", "words"),
    [
        ({"VGPU_SIMULATED": ""}, "NO_DEVICE", ""),
        ({"VGPU_SIMULATED": "2x16GB"}, "SYSTEM_NOT_READY", "2x16GB"),
        ({"VGPU_SIMULATED": "0x16GiB"}, "SYSTEM_NOT_READY", "1 to 16"),
        ({"VGPU_SIMGPU_SOCKET": "/tmp/" + "x" * 110}, "SYSTEM_NOT_READY", "107"),
        ({"VGPU_SIMGPU_SOCKET": "/proc/none/gpu.sock"}, "SYSTEM_NOT_READY", "/proc/none"),
    ],
)
def test_what_cannot_start_is_an_error_that_names_the_reason(alone, variables, expected, words):
    output, errors = alone.result("print(status(driver.cuInit(0)))", **variables)
    assert output == f"{expected}\n"
    assert words in errors
