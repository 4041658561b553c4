"""The device process's virtual memory management: mappings, and memory that crosses processes."""

from __future__ import annotations

import os

from tests.native.simgpu import device_client
from tests.native.simgpu.conftest import Machine
from tests.native.simgpu.device_client import (
    GRANULARITY,
    READ_WRITE,
    Access,
    floats,
    saxpy,
    status_of,
)
from tests.waiting import until

MIB = 1 << 20
CONTEXT = 300 * MIB


def test_unmapping_does_not_wait_and_the_kernel_that_comes_after_faults(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address, handle = gpu.map_memory(GRANULARITY)
    gpu.spin(200_000)
    spun = gpu.event(0)
    saxpy(gpu, 1.0, address, address, 4)
    gpu.call("Unmap", address=address, size=GRANULARITY)
    gpu.call("Release", handle=handle)
    assert gpu.used() == CONTEXT
    assert not gpu.happened(spun)
    assert status_of(gpu.synchronize) == device_client.ILLEGAL_ADDRESS


def test_vmm_calls_that_break_its_rules_change_nothing(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    size = 4 * GRANULARITY
    address = gpu.call("Reserve", size=size).address
    handle = gpu.call("Create", size=2 * GRANULARITY, device=0).handle
    used = gpu.used()
    bad = [
        ("Reserve", {"size": GRANULARITY + 1}),
        ("Reserve", {"size": GRANULARITY, "alignment": 3 * GRANULARITY}),
        ("Create", {"size": 1, "device": 0}),
        ("Map", {"address": address, "size": 1, "handle": handle}),
        ("Map", {"address": address + 1, "size": GRANULARITY, "handle": handle}),
        ("Map", {"address": address, "size": 3 * GRANULARITY, "handle": handle}),
        ("Map", {"address": address, "size": GRANULARITY, "offset": GRANULARITY, "handle": handle}),
        ("Map", {"address": address + 3 * GRANULARITY, "size": 2 * GRANULARITY, "handle": handle}),
        ("Map", {"address": 1 << 40, "size": GRANULARITY, "handle": handle}),
        ("Map", {"address": address, "size": GRANULARITY, "handle": handle + 99}),
        ("Unmap", {"address": address, "size": GRANULARITY}),
        ("ReserveFree", {"address": address, "size": GRANULARITY}),
        ("Release", {"handle": handle + 99}),
        ("HandleOf", {"address": address}),
        ("Export", {"handle": handle}),  # not made for that
    ]
    for name, fields in bad:
        assert status_of(gpu.call, name, **fields) == device_client.INVALID_VALUE, (name, fields)
    gpu.call("Map", address=address + GRANULARITY, size=2 * GRANULARITY, handle=handle)
    for name, fields in [
        ("Map", {"address": address, "size": 2 * GRANULARITY, "handle": handle}),
        ("Map", {"address": address + 2 * GRANULARITY, "size": GRANULARITY, "handle": handle}),
        ("Unmap", {"address": address + GRANULARITY, "size": GRANULARITY}),
        ("ReserveFree", {"address": address, "size": size}),
    ]:
        assert status_of(gpu.call, name, **fields) == device_client.INVALID_VALUE, (name, fields)
    whole = {"address": address, "size": size}
    assert status_of(gpu.call, "SetAccess", bytes(Access(0, READ_WRITE)), **whole) == device_client.INVALID_VALUE
    mapping = {"address": address + GRANULARITY, "size": 2 * GRANULARITY}
    assert status_of(gpu.call, "SetAccess", bytes(Access(0, 2)), **mapping) == device_client.INVALID_VALUE
    assert gpu.used() == used
    gpu.call("Unmap", **mapping)
    gpu.call("Release", handle=handle)
    gpu.call("ReserveFree", **whole)
    assert gpu.used() == CONTEXT


def test_physical_memory_keeps_its_contents_between_mappings(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address, handle = gpu.map_memory(GRANULARITY)
    gpu.write(address, b"kept")
    gpu.synchronize()
    gpu.call("Unmap", address=address, size=GRANULARITY)
    elsewhere = gpu.call("Reserve", size=2 * GRANULARITY).address
    for half in (0, 1):  # one memory at two addresses
        gpu.call("Map", address=elsewhere + half * GRANULARITY, size=GRANULARITY, handle=handle)
    assert gpu.call("GetAccess", address=elsewhere, device=0).flags == 0
    gpu.call("SetAccess", bytes(Access(0, READ_WRITE)), address=elsewhere, size=2 * GRANULARITY)
    assert gpu.call("GetAccess", address=elsewhere, device=0).flags == READ_WRITE
    assert gpu.read(elsewhere + GRANULARITY, 4) == b"kept"
    assert gpu.call("HandleOf", address=elsewhere).handle == handle
    gpu.call("Release", handle=handle)
    gpu.call("Release", handle=handle)
    assert gpu.used() == CONTEXT + GRANULARITY  # mapped still
    assert gpu.read(elsewhere, 4) == b"kept"


def test_an_access_runs_over_neighbouring_mappings(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    size = 2 * GRANULARITY
    address = gpu.call("Reserve", size=size).address
    for half in (0, 1):
        handle = gpu.call("Create", size=GRANULARITY, device=0).handle
        gpu.call("Map", address=address + half * GRANULARITY, size=GRANULARITY, handle=handle)
    gpu.call("SetAccess", bytes(Access(0, READ_WRITE)), address=address, size=size)
    edge = address + GRANULARITY - 8
    gpu.write(edge, floats(1, 2, 3, 4))
    saxpy(gpu, 1.0, edge, edge, 4)
    assert gpu.read(edge, 16) == floats(2, 4, 6, 8)


def test_exported_memory_is_shared_and_outlives_its_creator(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    address, handle = gpu.map_memory(GRANULARITY)
    gpu.write(address, b"for the importer")
    gpu.synchronize()
    gpu.call("Export", handle=handle)
    importer = simulated.child(descriptors=(gpu.descriptor,))
    importer.do("enter")
    there = importer.do("map_imported", gpu.descriptor, GRANULARITY)
    assert importer.do("read_text", there, 16) == "for the importer"
    assert gpu.used() == 2 * CONTEXT + GRANULARITY
    gpu.call("Unmap", address=address, size=GRANULARITY)
    gpu.call("Release", handle=handle)
    assert gpu.used() == 2 * CONTEXT + GRANULARITY
    assert importer.do("read_text", there, 16) == "for the importer"
    importer.kill()
    until(lambda: gpu.used() == CONTEXT)


def test_a_descriptor_alone_keeps_exported_memory(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    handle = gpu.call("Create", size=GRANULARITY, device=0, handle_types=1).handle
    gpu.call("Export", handle=handle)
    descriptor = os.dup(gpu.descriptor)
    gpu.call("Release", handle=handle)
    assert gpu.used() == CONTEXT + GRANULARITY
    handle = gpu.import_handle(descriptor)
    os.close(descriptor)
    assert gpu.call("HandleState", handle=handle).handle_types == 1
    gpu.call("Release", handle=handle)
    until(lambda: gpu.used() == CONTEXT)


def test_the_importer_is_charged_when_the_creator_dies(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    creator = simulated.child()
    creator.do("enter")
    # Opening it through /proc is as good as being sent it.
    descriptor = os.open(f"/proc/{creator.pid}/fd/{creator.do('export_memory', GRANULARITY)}", os.O_WRONLY)
    assert gpu.processes()[creator.pid].used == CONTEXT + GRANULARITY
    handle = gpu.import_handle(descriptor)
    assert gpu.call("HandleState", handle=handle).size == GRANULARITY
    os.close(descriptor)
    creator.kill()
    until(lambda: creator.pid not in gpu.processes())
    assert gpu.processes()[os.getpid()].used == CONTEXT + GRANULARITY
    gpu.call("Release", handle=handle)
    assert gpu.used() == CONTEXT


def test_a_descriptor_that_is_no_export_is_refused(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    reading, writing = os.pipe()
    for descriptor in (reading, writing, -1):
        assert status_of(gpu.call, "Import", descriptor=descriptor) == device_client.INVALID_VALUE
    os.close(reading)
    os.close(writing)
