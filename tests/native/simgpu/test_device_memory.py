"""The device process's memory: books, copies, faults."""

from __future__ import annotations

import mmap
import os
import struct

from tests.native.simgpu import device_client
from tests.native.simgpu.conftest import Machine
from tests.native.simgpu.device_client import (
    GRANULARITY,
    STAGING_SIZE,
    Access,
    Connection,
    Rows,
    floats,
    saxpy,
    status_of,
)

MIB, GIB = 1 << 20, 1 << 30
CONTEXT = 300 * MIB


def test_books_follow_every_allocation_and_free(simulated: Machine) -> None:
    gpu = simulated.connect()
    assert gpu.hello.device_count == 2
    assert gpu.used() == 0
    gpu.enter()
    assert gpu.used() == CONTEXT
    small, large = gpu.allocate(1000), gpu.allocate(3 * GIB)
    assert gpu.used() == CONTEXT + 1024 + 3 * GIB
    assert gpu.processes()[os.getpid()].used == gpu.used()
    assert gpu.used(1) == 0
    for address in (small, large):
        gpu.call("Free", address=address)
    assert gpu.used() == CONTEXT
    gpu.call("PrimaryRelease", device=0)
    gpu.context = 0
    assert gpu.used() == 0
    assert gpu.processes() == {}


def test_a_denied_allocation_is_out_of_memory_and_changes_nothing(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    gpu.allocate(15 * GIB)
    used = gpu.used()
    for size in (GIB, 1 << 40, (1 << 64) - 1):
        assert status_of(gpu.allocate, size) == device_client.OUT_OF_MEMORY
    assert status_of(gpu.call, "Create", size=GIB, device=0) == device_client.OUT_OF_MEMORY
    assert status_of(gpu.call, "AllocateAsync", size=GIB) == device_client.OUT_OF_MEMORY
    assert status_of(gpu.allocate, 0) == device_client.INVALID_VALUE
    assert gpu.used() == used
    gpu.allocate(16 * GIB - used)
    assert gpu.used() == 16 * GIB


def test_a_context_that_does_not_fit_is_out_of_memory(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    gpu.allocate(16 * GIB - CONTEXT)
    child = simulated.child()
    assert status_of(child.do, "enter") == device_client.OUT_OF_MEMORY
    assert list(gpu.processes()) == [os.getpid()]


def test_memory_that_nobody_writes_costs_no_ram(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    before = simulated.resident()
    address = gpu.allocate(15 * GIB)
    gpu.call("Fill", to=Rows(address, 15 * GIB), width=15 * GIB, height=1, value=0, element=4)
    gpu.synchronize()
    assert gpu.read(address + 14 * GIB, 16) == bytes(16)
    assert simulated.resident() - before < 16 * MIB


def test_zeros_written_over_data_are_read_back(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address = gpu.allocate(64 << 10)
    gpu.write(address, b"\xff" * (64 << 10))
    gpu.call("Fill", to=Rows(address + 4, 20000), width=20000, height=1, value=0, element=1)
    assert gpu.read(address, 64 << 10) == b"\xff" * 4 + bytes(20000) + b"\xff" * ((64 << 10) - 20004)


def test_kernels_compute(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    x, y, z = (gpu.allocate(16) for _ in range(3))
    gpu.write(x, floats(1, 2, 3, 4))
    gpu.launch("kFill", struct.pack("<QfI", y, 1.5, 4), threads=4)
    saxpy(gpu, 2.0, x, y, 4)
    assert gpu.read(y, 16) == floats(3.5, 5.5, 7.5, 9.5)
    gpu.launch("kAdd", struct.pack("<QQQI", x, y, z, 4), threads=4)
    gpu.launch("kScale", struct.pack("<f4xQI", 10.0, z, 3), threads=4)
    assert gpu.read(z, 16) == floats(45, 75, 105, 13.5)


def test_a_kernel_computes_no_more_elements_than_it_has_threads(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address = gpu.allocate(4 * 300)
    gpu.launch("kFill", struct.pack("<QfI", address, 1.0, 300), threads=256)
    assert gpu.read(address, 4 * 300) == floats(*[1.0] * 256, *[0.0] * 44)


def test_bad_launches_are_refused_and_leave_the_context_intact(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    assert status_of(gpu.launch, "kUnknown", b"") == device_client.NOT_SUPPORTED
    assert status_of(gpu.launch, "kSpin", b"") == device_client.INVALID_VALUE
    assert status_of(gpu.launch, "kSpin", bytes(4), stream=4711) == device_client.INVALID_HANDLE
    kernel = device_client.ENUMS["Kernel"]["kSpin"]
    for grid, block in (((0, 1, 1), (1, 1, 1)), ((1, 1, 1), (1025, 1, 1)), ((1, 1, 1), (1 << 31, 1 << 31, 4))):
        assert status_of(gpu.call, "Launch", bytes(4), kernel=kernel, grid=grid, block=block) == device_client.INVALID_VALUE
    gpu.synchronize()


def test_rows_are_copied_with_their_pitch(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address = gpu.allocate(64)
    gpu.call("CopyIn", b"abcdefgh", to=Rows(address, 16), width=4, height=2)
    assert gpu.read(address, 20) == b"abcd" + bytes(12) + b"efgh"
    other = gpu.allocate(64)
    gpu.call("CopyDevice", to=Rows(other, 4), **{"from": Rows(address, 16)}, width=4, height=2)
    assert gpu.read(other, 8) == b"abcdefgh"
    gpu.call("CopyOut", **{"from": Rows(address, 16)}, width=2, height=2)
    assert gpu.payload == b"abef"
    # A last row that ends at the allocation's end; then one byte more.
    gpu.call("CopyIn", b"x" * 8, to=Rows(address + 512 - 20, 16), width=4, height=2)
    assert status_of(gpu.call, "CopyIn", b"x" * 8, to=Rows(address + 512 - 19, 16), width=4, height=2) == device_client.INVALID_VALUE
    assert status_of(gpu.call, "CopyIn", b"x" * 8, to=Rows(address, 1 << 63), width=4, height=4) == device_client.INVALID_VALUE
    assert status_of(gpu.call, "CopyIn", b"x" * 8, to=Rows(address, 2), width=4, height=2) == device_client.INVALID_VALUE
    gpu.call("CopyIn", to=Rows(address, 0), width=0, height=2)  # nothing to do
    assert status_of(gpu.call, "CopyIn", b"x" * 8, to=Rows(address, 16), width=8, height=2) == device_client.INVALID_VALUE


def test_large_copies_go_through_staging_memory(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address = gpu.allocate(STAGING_SIZE)
    data = os.urandom(STAGING_SIZE)
    with mmap.mmap(gpu.staging, STAGING_SIZE) as staging:
        staging[:] = data
        gpu.call("CopyIn", to=Rows(address, STAGING_SIZE), width=STAGING_SIZE, height=1, staged=1)
        staging[:] = bytes(STAGING_SIZE)
        gpu.call("CopyOut", **{"from": Rows(address, STAGING_SIZE)}, width=STAGING_SIZE, height=1, staged=1)
        assert staging[:] == data


def test_devices_of_one_process_copy_to_each_other(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter(1)
    there = gpu.allocate(16)
    gpu.enter(0)
    here = gpu.allocate(16)
    gpu.write(here, b"from device zero")
    gpu.call("CopyDevice", to=Rows(there, 16), **{"from": Rows(here, 16)}, width=16, height=1)
    gpu.synchronize()
    assert gpu.read(there, 16) == b"from device zero"


def test_pinned_memory_is_seen_by_both_sides_and_charged_to_nobody(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    used = gpu.used()
    address = 0x7E0000000000
    gpu.call("HostAlloc", address=address, size=5000, kind=device_client.ENUMS["Memory"]["kHost"])
    with mmap.mmap(gpu.descriptor, 5000) as memory:
        memory[:16] = b"written by a CPU"
        device = gpu.allocate(16)
        gpu.call("CopyDevice", to=Rows(device, 16), **{"from": Rows(address, 16)}, width=16, height=1)
        assert gpu.read(device, 16) == b"written by a CPU"
        gpu.launch("kFill", struct.pack("<QfI", address, 1.0, 1))
        gpu.synchronize()
        assert memory[:4] == floats(1.0)
    gpu.call("Free", address=device)
    assert gpu.used() == used
    gpu.call("HostFree", address=address)
    assert status_of(gpu.call, "HostFree", address=address) == device_client.INVALID_VALUE


def test_managed_memory_is_charged(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address = 0x7E0000000000
    gpu.call("HostAlloc", address=address, size=GIB, kind=device_client.ENUMS["Memory"]["kManaged"])
    assert gpu.used() == CONTEXT + GIB
    assert status_of(gpu.call, "HostAlloc", address=address + GIB - 4096, size=8192, kind=1) == device_client.INVALID_VALUE
    gpu.call("HostFree", address=address)
    assert gpu.used() == CONTEXT


def test_an_address_says_what_it_belongs_to(simulated: Machine) -> None:
    gpu = simulated.connect()
    context = gpu.enter()
    address = gpu.allocate(1000)
    state = gpu.call("AddressState", address=address + 999)
    assert (state.base, state.size, state.context, state.device) == (address, 1024, context, 0)
    assert status_of(gpu.call, "AddressState", address=address + 1024) == device_client.INVALID_VALUE
    assert status_of(gpu.call, "Free", address=address + 512) == device_client.INVALID_VALUE


def test_pool_memory_is_freed_in_its_streams_turn(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    stream = gpu.stream()
    address = gpu.call("AllocateAsync", size=2 * GIB, stream=stream).address
    gpu.spin(100_000, stream)
    before = gpu.event(stream)
    gpu.call("FreeAsync", address=address, stream=stream)
    assert gpu.used() == CONTEXT + 2 * GIB
    assert not gpu.happened(before)
    # There is no room until then: the allocation waits for the free and has it.
    gpu.call("AllocateAsync", size=15 * GIB, stream=stream)
    assert gpu.happened(before)
    state = gpu.call("PoolState", device=0)
    assert (state.used, state.high) == (15 * GIB, 15 * GIB)
    assert gpu.used() == CONTEXT + 15 * GIB


def test_freeing_waits_for_the_contexts_work(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address = gpu.allocate(4096)
    stream = gpu.stream(blocking=False)
    gpu.spin(50_000, stream)
    saxpy(gpu, 1.0, address, address, 4, stream)
    gpu.call("Free", address=address)
    gpu.synchronize()


def test_a_fault_stays_with_its_context_and_takes_nobody_else_down(simulated: Machine) -> None:
    gpu, child = simulated.connect(), simulated.child()
    gpu.enter()
    child.do("enter")
    other = child.do("allocate", GIB)
    address = gpu.allocate(4096)
    pending = gpu.event()
    saxpy(gpu, 1.0, address, address + 4096, 4)
    for call in (gpu.synchronize, lambda: gpu.allocate(1), lambda: gpu.call("EventQuery", event=pending), gpu.stream):
        assert status_of(call) == device_client.ILLEGAL_ADDRESS
    child.do("spin", 10)
    child.do("synchronize")
    child.do("call", "Free", address=other)
    # Another context of the same process is not touched, and the reset one works again.
    gpu.enter(1)
    gpu.allocate(4096)
    gpu.call("PrimaryReset", device=0)
    gpu.enter(0)
    assert gpu.used() == 2 * CONTEXT
    address = gpu.allocate(4096)
    saxpy(gpu, 1.0, address, address, 4)
    gpu.synchronize()


def test_kernels_fault_on_what_their_device_may_not_use(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter(0)

    def status(launch) -> int:
        gpu.call("PrimaryReset", device=0)
        launch(gpu)
        return status_of(gpu.synchronize)

    def foreign(gpu: Connection) -> None:
        gpu.enter(1)
        address = gpu.allocate(4096)
        gpu.enter(0)
        saxpy(gpu, 1.0, address, address, 4)

    def read_only(gpu: Connection) -> None:
        address, _ = gpu.map_memory(GRANULARITY)
        gpu.call("SetAccess", bytes(Access(0, 1)), address=address, size=GRANULARITY)
        saxpy(gpu, 1.0, address, address, 4)

    def unaligned(gpu: Connection) -> None:
        address = gpu.allocate(4096)
        saxpy(gpu, 1.0, address, address + 2, 4)

    assert status(foreign) == device_client.ILLEGAL_ADDRESS
    assert status(read_only) == device_client.ILLEGAL_ADDRESS
    assert status(unaligned) == device_client.MISALIGNED


def test_a_copy_to_an_unknown_address_is_refused_and_the_context_works_on(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    assert status_of(gpu.write, 0xDEAD000, b"x") == device_client.INVALID_VALUE
    assert status_of(gpu.read, 0xDEAD000, 1) == device_client.INVALID_VALUE
    gpu.synchronize()
