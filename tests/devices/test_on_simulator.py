"""The devices room on the simulator: the same figures on both sides, and one reading of VGPU_SIMULATED."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_vgpu.devices import DeviceMemory, DeviceProcess, DevicesUnavailable, Nvml, simulated_spec
from jupyter_vgpu.pool.model import InvalidValue
from tests.native.simgpu.conftest import Machine, started
from tests.native.simgpu.simulated_nvml import simulated_nvml
from tests.waiting import until

GIB, MIB = 1024**3, 1024**2
SIMGPU = Path(__file__).resolve().parents[2] / "native" / "simgpu"


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Unequal devices, and a context that takes other than the default."""
    with started("16GiB,2x8GiB,context=64MiB") as machine:
        yield machine


@pytest.fixture
def devices(machine: Machine) -> Iterator[Nvml]:
    with simulated_nvml(socket=machine.path, spec=machine.spec) as nvml:
        backend = Nvml(nvml)
        yield backend
        backend.close()


def test_devices_are_those_of_the_specification(machine: Machine, devices: Nvml) -> None:
    found = devices.devices()
    assert tuple(device.memory_total for device in found) == simulated_spec({"VGPU_SIMULATED": machine.spec}).memory
    assert [device.index for device in found] == [0, 1, 2] and len({device.uuid for device in found}) == 3
    assert [(device.name, device.simulated) for device in found] == [(f"Simulated GPU {gib} GiB", True) for gib in (16, 8, 8)]
    for device in found:
        assert devices.memory(device.uuid) == DeviceMemory(total=device.memory_total, used=0, free=device.memory_total)
        assert devices.processes(device.uuid) == []


def test_memory_and_processes_are_the_simulators(machine: Machine, devices: Nvml) -> None:
    first, second, _ = devices.devices()
    context = simulated_spec({"VGPU_SIMULATED": machine.spec}).context
    one, other = machine.child(), machine.child()
    one.do("enter", 1)
    one.do("allocate", 3 * GIB)
    other.do("enter", 1)
    used = 3 * GIB + 2 * context
    assert used == one.do("used", 1)
    assert devices.memory(second.uuid) == DeviceMemory(total=8 * GIB, used=used, free=8 * GIB - used)
    held = {one.pid: 3 * GIB + context, other.pid: context}
    assert devices.processes(second.uuid) == [DeviceProcess(pid=pid, memory_used=held[pid]) for pid in sorted(held)]
    assert devices.processes(first.uuid) == []

    one.kill()
    until(lambda: devices.processes(second.uuid) == [DeviceProcess(pid=other.pid, memory_used=context)])


def test_readings_follow_the_load(machine: Machine, devices: Nvml) -> None:
    busy, idle, _ = (device.uuid for device in devices.devices())
    rest = devices.readings(busy)
    assert rest.utilization == 0 and rest.temperature and rest.power
    worker = machine.child()
    worker.do("enter")
    worker.do("spin", 60_000_000)
    until(lambda: devices.readings(busy).utilization == 1)
    loaded = devices.readings(busy)
    assert loaded.temperature > rest.temperature and loaded.power > rest.power
    assert devices.readings(idle) == rest


def test_a_machine_that_comes_back_has_the_same_devices(machine: Machine, devices: Nvml) -> None:
    before = devices.devices()
    os.kill(machine.pid, signal.SIGKILL)
    until(lambda: not machine.running())
    with pytest.raises(DevicesUnavailable, match="not loaded"):
        devices.memory(before[0].uuid)
    machine.start()
    assert devices.memory(before[0].uuid).total == 16 * GIB
    assert devices.devices() == before


@pytest.fixture(scope="module")
def simulators_reading(tmp_path_factory) -> Iterator[subprocess.Popen[str]]:
    program = tmp_path_factory.mktemp("spec") / "spec_lines"
    sources = [Path(__file__).with_name("spec_lines.cpp"), SIMGPU / "common" / "spec.cpp"]
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", f"-I{SIMGPU}", *map(str, sources), "-o", str(program)], check=True)
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        yield process
        process.stdin.close()


# Half of the parts are well-formed, and of those some too large, too many or no multiple of 2 MiB.
UNIT = st.sampled_from(["MiB", "GiB", "TiB"])
GOOD_SIZE = st.one_of(
    st.builds("{}{}".format, st.integers(1, 40).map(lambda half: 2 * half), UNIT),
    st.sampled_from(["16TiB", "17TiB", "16384GiB", "16385GiB", "16777216MiB", "16777217MiB", "3MiB", "007GiB", "0GiB"]),
)
GOOD_PART = st.one_of(
    GOOD_SIZE,
    st.builds("{}x{}".format, st.integers(1, 6), GOOD_SIZE),
    st.builds("context={}".format, GOOD_SIZE),
)
NUMBER = st.one_of(st.integers(0, 120).map(str), st.sampled_from(["999999999999", "1000000000000", "", "-1", "+1", "1.5", "٢"]))
BAD_SIZE = st.builds("{}{}".format, NUMBER, st.one_of(UNIT, st.sampled_from(["", "GB", "gib", " GiB", "KiB", "GiBx"])))
BAD_PART = st.one_of(
    BAD_SIZE,
    st.builds("{}x{}".format, NUMBER, BAD_SIZE),
    st.builds("{}={}".format, st.sampled_from(["context", "Context", "contxt", ""]), BAD_SIZE),
    st.text("0123456789xMGTiB,=context ٢é/", max_size=12),
)
PARTS = st.one_of(st.lists(GOOD_PART, min_size=1, max_size=5), st.lists(st.one_of(GOOD_PART, BAD_PART), max_size=5))


@given(parts=PARTS)
def test_the_simulator_reads_every_specification_as_we_do(simulators_reading: subprocess.Popen[str], parts: list[str]) -> None:
    text = ",".join(parts)
    try:
        spec = simulated_spec({"VGPU_SIMULATED": text})
        expected = None if spec is None else " ".join(map(str, (spec.context, *spec.memory)))
    except InvalidValue:
        expected = "refused"
    simulators_reading.stdin.write(text + "\n")
    simulators_reading.stdin.flush()
    # Empty means no simulation: the library does not ask the parser then.
    assert simulators_reading.stdout.readline().rstrip("\n") == (expected or "refused")
