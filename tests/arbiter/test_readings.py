"""What the readings say of devices and processes that come and go while they are taken."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from jupyter_vgpu.arbiter.readings import PERIOD, Readings
from jupyter_vgpu.arbiter.tenants import Tenants
from jupyter_vgpu.devices import DeviceMemory, DeviceProcess, DeviceReadings, DevicesUnavailable
from jupyter_vgpu.pool.model import Device

DEVICE = Device(uuid="GPU-1", index=0, name="Test GPU", memory_total=1000)
INVISIBLE = 2**22 - 1  # larger than any pid of a default Linux; the driver may speak of another PID namespace


class Backend:
    def __init__(self) -> None:
        self.memory_now: DeviceMemory | Exception | None = DeviceMemory(total=1000, used=100, free=900)
        self.holders: dict[int, int] = {}
        self.asked = 0

    def memory(self, uuid: str) -> DeviceMemory | None:
        self.asked += 1
        if isinstance(self.memory_now, Exception):
            raise self.memory_now
        return self.memory_now

    def processes(self, uuid: str) -> list[DeviceProcess]:
        return [DeviceProcess(pid=pid, memory_used=used) for pid, used in self.holders.items()]

    def readings(self, uuid: str) -> DeviceReadings:
        return DeviceReadings()

    def close(self) -> None:
        """Nothing is open."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def readings(backend: Backend, clock: Clock) -> Iterator[Readings]:
    made = Readings(backend, clock=clock)
    yield made
    made.close()


@pytest.fixture
def process() -> Iterator[subprocess.Popen]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.wait()
    child.stdin.close()


def read(readings: Readings) -> None:
    asyncio.run(readings.refresh((DEVICE,), Tenants()))


def test_a_reading_is_outdated_by_its_age(readings, clock):
    assert readings.outdated, "nothing was read yet"
    read(readings)
    assert not readings.outdated
    clock.now = PERIOD + 0.1
    assert readings.outdated


def test_a_reading_is_outdated_by_the_end_of_a_process_in_it(readings, backend, process):
    backend.holders = {process.pid: 10, INVISIBLE: 20}
    read(readings)
    assert not readings.outdated
    process.kill()
    process.wait()
    assert readings.outdated
    assert readings.latest["GPU-1"].gone() == {process.pid}


def test_a_process_that_the_driver_has_not_let_go_of_yet_is_left_out(readings, backend, process):
    backend.holders = {process.pid: 10, INVISIBLE: 20}
    read(readings)
    process.kill()
    process.wait()
    for _ in range(3):
        read(readings)
        assert readings.latest["GPU-1"].processes == {INVISIBLE: 20}
        assert not readings.outdated, "there is no better reading to be had"


def test_a_zombie_has_ended(readings, backend, process):
    backend.holders = {process.pid: 10}
    read(readings)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert readings.latest["GPU-1"].gone() == {process.pid}, "its pid stays until its parent has waited for it; its memory does not"


@pytest.mark.parametrize("trouble", [None, DevicesUnavailable("the driver is not loaded")], ids=["lost card", "no driver"])
def test_a_device_that_cannot_be_read_is_said_once_and_comes_back(readings, backend, caplog, trouble):
    caplog.set_level("INFO")
    good = backend.memory_now
    read(readings)
    backend.memory_now = trouble
    for _ in range(5):
        read(readings)
    assert readings.latest == {}
    assert [(record.levelname, "GPU-1" in record.message) for record in caplog.records] == [("WARNING", True)]
    backend.memory_now = good
    read(readings)
    assert readings.latest["GPU-1"].memory_used == 100
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_one_device_in_trouble_does_not_hide_the_others(backend, clock):
    class TwoDevices(Backend):
        def memory(self, uuid):
            if uuid == "GPU-1":
                raise DevicesUnavailable("gone")
            return super().memory(uuid)

    readings = Readings(TwoDevices(), clock=clock)
    other = Device(uuid="GPU-2", index=1, name="Test GPU", memory_total=1000)
    asyncio.run(readings.refresh((DEVICE, other), Tenants()))
    assert list(readings.latest) == ["GPU-2"]
    readings.close()
