"""The device process's timeline: streams, events, queues, contention."""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise

import pytest

from tests.native.simgpu import device_client
from tests.native.simgpu.conftest import Machine
from tests.native.simgpu.device_client import CallFailed, Connection
from tests.waiting import until

MS = 1_000_000  # ns
SLICE = 2 * MS
QUEUE_LIMIT = 1024
GIB = 1 << 30
CONTEXT = 300 << 20


def elapsed(gpu: Connection, start: int, end: int) -> int:
    return gpu.call("EventElapsed", start=start, end=end).nanoseconds


def test_a_spin_takes_its_time_of_the_device(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    gpu.spin(20_000)  # so that all that follows is queued before it starts
    events = [gpu.event(0)]
    for microseconds in (5_000, 300, 10_000):
        gpu.spin(microseconds)
        events.append(gpu.event(0))
    began = time.monotonic()
    gpu.synchronize()
    assert [elapsed(gpu, *pair) for pair in pairwise(events)] == [5 * MS, MS * 3 // 10, 10 * MS]
    assert gpu.call("DeviceState", device=0).busy == 35 * MS + 3 * MS // 10
    assert gpu.call("DeviceState", device=1).busy == 0
    assert time.monotonic() - began > 0.01


def test_streams_of_a_process_share_its_time(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    long, short = gpu.stream(blocking=False), gpu.stream(blocking=False)
    gpu.spin(100_000, long)
    end_of_long = gpu.event(long)
    gpu.spin(2_000, short)
    gpu.synchronize(short)
    assert not gpu.happened(end_of_long)


def test_the_legacy_stream_keeps_order_with_blocking_streams_only(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    blocking, free = gpu.stream(), gpu.stream(blocking=False)
    gpu.spin(100_000, blocking)
    first = gpu.event(blocking)
    gpu.spin(10)  # legacy: behind `blocking`
    second = gpu.event(0)
    gpu.spin(10, blocking)  # behind legacy
    third = gpu.event(blocking)
    gpu.spin(10, free)
    gpu.synchronize(free)
    assert not gpu.happened(first)
    gpu.synchronize()
    assert 0 <= elapsed(gpu, first, second) <= elapsed(gpu, first, third)
    gpu.spin(100_000, free)
    gpu.spin(10)
    gpu.synchronize(0)
    with pytest.raises(CallFailed) as busy:
        gpu.call("StreamQuery", stream=free)
    assert busy.value.status == device_client.NOT_READY


def test_a_stream_waits_for_another_ones_event(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    streams = [gpu.stream(blocking=False) for _ in range(2)]
    gpu.spin(50_000, streams[0])
    done = gpu.event(streams[0])
    gpu.call("StreamWaitEvent", stream=streams[1], event=done)
    behind = gpu.event(streams[1])
    gpu.call("EventSynchronize", event=behind)
    assert gpu.happened(done)
    assert elapsed(gpu, done, behind) >= 0


def test_a_stream_waits_for_an_event_of_another_device(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter(1)
    gpu.spin(50_000)
    there = gpu.event(0)
    gpu.enter(0)
    gpu.call("StreamWaitEvent", stream=0, event=there)
    here = gpu.event(0)
    gpu.synchronize()
    assert gpu.happened(there)
    assert elapsed(gpu, there, here) >= 0


def test_events_answer_by_their_state(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    never = gpu.event()
    assert gpu.happened(never)
    gpu.call("EventSynchronize", event=never)
    gpu.spin(100_000)
    recorded = gpu.event(0)
    assert not gpu.happened(recorded)
    for start, end, status in (
        (never, recorded, device_client.INVALID_HANDLE),
        (recorded, recorded, device_client.NOT_READY),
        (recorded, 4711, device_client.INVALID_HANDLE),
    ):
        with pytest.raises(CallFailed) as failed:
            elapsed(gpu, start, end)
        assert failed.value.status == status
    gpu.call("EventDestroy", event=never)
    with pytest.raises(CallFailed):
        gpu.happened(never)


def test_a_destroyed_stream_finishes_its_work(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    stream = gpu.stream()
    gpu.spin(30_000, stream)
    done = gpu.event(stream)
    gpu.call("StreamDestroy", stream=stream)
    assert not gpu.happened(done)
    with pytest.raises(CallFailed):
        gpu.spin(1, stream)
    gpu.synchronize()
    assert gpu.happened(done)


def test_a_full_queue_blocks_the_next_launch(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    gpu.spin(1_500_000)
    first = gpu.event(0)
    for _ in range(QUEUE_LIMIT - 2):
        gpu.spin(1)
    assert not gpu.happened(first)
    gpu.spin(1)  # waits until the first one has gone
    assert gpu.happened(first) or gpu.call("DeviceState", device=0).busy >= 1_500 * MS
    gpu.synchronize()


def test_a_launch_that_waits_in_a_full_queue_ends_with_its_context(simulated: Machine) -> None:
    gpu = simulated.connect()
    other_thread = simulated.connect()
    gpu.enter()
    stream = gpu.stream()
    gpu.spin(60_000_000, stream)
    for _ in range(QUEUE_LIMIT - 1):
        gpu.spin(1, stream)
    gpu.send("Launch", bytes(4), kernel=device_client.ENUMS["Kernel"]["kSpin"], grid=(1, 1, 1), block=(1, 1, 1), stream=stream)
    other_thread.call("PrimaryReset", device=0)
    with pytest.raises(CallFailed):
        gpu.receive("Launch")
    gpu.spin(10)
    gpu.synchronize()


def test_two_contenders_get_half_each_and_their_times_add_up(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    gpu.spin(100_000)  # holds neither of them up for long; both queue behind their own context only
    children = [simulated.child() for _ in range(2)]
    for child in children:
        child.do("enter")
        child.do("spin", 1)
        child.do("synchronize")
    gpu.synchronize()
    started = {child.pid: gpu.processes()[child.pid].busy for child in children}
    for child in children:
        for _ in range(20):
            child.do("spin", 50_000)

    def served() -> list[int]:
        states = gpu.processes()
        return [states[child.pid].busy - started[child.pid] for child in children]

    def both_have_run() -> bool:
        return min(served()) > 0

    until(both_have_run)
    before = served()
    until(lambda: sum(served()) - sum(before) >= 400 * MS)
    after = served()
    shares = [b - a for a, b in zip(before, after, strict=True)]
    assert abs(shares[0] - shares[1]) <= SLICE
    # What they got together is what the device gave.
    for child in children:
        child.do("synchronize")
    assert served() == [1000 * MS, 1000 * MS] or sum(served()) == 2000 * MS
    assert gpu.call("DeviceState", device=0).busy == sum(state.busy for state in gpu.processes().values())


def test_utilization_is_the_busy_part_of_the_last_second(simulated: Machine) -> None:
    gpu = simulated.connect()
    gpu.enter()
    assert gpu.call("DeviceState", device=0).utilization == 0
    gpu.spin(60_000_000)
    until(lambda: gpu.call("DeviceState", device=0).utilization >= 95)
    assert gpu.processes()[os.getpid()].utilization >= 95
    gpu.call("PrimaryReset", device=0)
    until(lambda: gpu.call("DeviceState", device=0).utilization == 0)


def test_a_host_function_holds_its_stream_until_it_returns(simulated: Machine) -> None:
    gpu = simulated.connect()
    worker = simulated.connect()
    gpu.enter()
    stream, other = gpu.stream(blocking=False), gpu.stream(blocking=False)
    gpu.call("LaunchHost", stream=stream, cookie=42)
    behind = gpu.event(stream)
    assert worker.call("NextHostCall").cookie == 42
    gpu.spin(10, other)
    gpu.synchronize(other)
    assert not gpu.happened(behind)
    worker.call("HostCallDone", cookie=42)
    gpu.synchronize(stream)
    assert gpu.happened(behind)


def test_threads_of_a_process_call_at_the_same_time(simulated: Machine) -> None:
    gpu = simulated.connect()
    context = gpu.enter()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            mine = simulated.connect()
            mine.context = context
            stream = mine.stream()
            for _ in range(50):
                address = mine.allocate(4096)
                mine.write(address, b"1234", stream)
                assert mine.read(address, 4, stream) == b"1234"
                mine.call("Free", address=address)
        except BaseException as error:  # a thread's failure is the test's
            failures.append(error)

    used = gpu.used()
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert gpu.used() == used


def test_a_long_effect_holds_up_nobody_elses_calls(simulated: Machine) -> None:
    gpu, child = simulated.connect(), simulated.child()
    gpu.enter()
    child.do("enter")
    address = child.do("allocate", GIB)
    child.do("fill_bytes", address, GIB, 0x55)
    filled = child.do("event", 0)
    answered = 0
    while not child.do("happened", filled):
        gpu.used()
        answered += 1
    assert answered > 20
    assert child.do("read_text", address + GIB - 4, 4) == "UUUU"


def test_work_of_a_process_killed_in_the_middle_of_a_long_effect_ends(simulated: Machine) -> None:
    gpu, child = simulated.connect(), simulated.child()
    gpu.enter()
    child.do("enter")
    address = child.do("allocate", 2 * GIB)
    child.do("fill_bytes", address, 2 * GIB, 0x55)
    until(lambda: simulated.resident() > GIB // 4)
    used = gpu.used() - 2 * GIB - CONTEXT
    child.kill()
    until(lambda: gpu.used() == used, within=1)
    gpu.spin(10)
    gpu.synchronize()
