"""The queue's rules, without a clock of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_vgpu.arbiter.queue import Queue, Waiting


def waiting(name: str, *, priority: str = "interactive", devices: str = "a", deadline: float = 100.0) -> Waiting:
    return Waiting(lease_id=name, priority=priority, devices=frozenset(devices), reason="full", since=0.0, deadline=deadline)


def filled(*entries: Waiting) -> Queue:
    queue = Queue()
    for entry in entries:
        queue.add(entry)
    return queue


def test_first_come_first_served_within_a_priority():
    queue = filled(waiting("1", priority="batch"), waiting("2"), waiting("3", priority="batch"), waiting("4"))
    assert [entry.lease_id for entry in queue.order()] == ["2", "4", "1", "3"]
    assert [queue.position(name) for name in "2413"] == [1, 2, 3, 4]
    assert queue.position("none") is None


def test_a_second_wait_of_the_same_lease_keeps_place_and_deadline():
    queue = filled(waiting("1", deadline=10), waiting("2"), waiting("1", deadline=50))
    assert [entry.lease_id for entry in queue.order()] == ["1", "2"]
    assert queue.expired(now=10) == ["1"]


def test_nobody_passes_an_earlier_one_on_the_same_device():
    queue = filled(waiting("large"), waiting("small"), waiting("elsewhere", devices="b"), waiting("both", devices="ab"))
    assert queue.admit(lambda name: "no room" if name == "large" else None) == ["elsewhere"]
    assert queue.reason("large") == "no room"
    assert queue.reason("small") == queue.reason("both") == "others wait for the same device"


def test_time_is_up_at_the_deadline_and_not_before():
    queue = filled(waiting("1", deadline=10), waiting("2", deadline=20))
    assert queue.expired(now=9.99) == []
    assert queue.expired(now=10) == ["1"]
    assert "1" not in queue and "2" in queue


def test_a_change_of_priority_moves_a_waiting_lease():
    queue = filled(waiting("1"), waiting("2"))
    queue.update("1", priority="batch", devices="b")
    queue.update("none", priority="batch", devices="b")
    assert [entry.lease_id for entry in queue.order()] == ["2", "1"]
    assert len(queue) == 2


@given(st.lists(st.tuples(st.sampled_from(["interactive", "batch"]), st.sets(st.sampled_from("abc"), min_size=1), st.booleans())))
def test_whoever_is_admitted_had_nobody_before_him_on_his_devices(wishes):
    queue = filled(*(waiting(str(i), priority=priority, devices="".join(devices)) for i, (priority, devices, _) in enumerate(wishes)))
    before = queue.order()
    admitted = set(queue.admit(lambda name: None if wishes[int(name)][2] else "full"))
    remaining = {entry.lease_id for entry in queue.order()}
    assert admitted | remaining == {entry.lease_id for entry in before} and not admitted & remaining
    for index, entry in enumerate(before):
        if entry.lease_id in admitted:
            assert not any(other.lease_id in remaining and other.devices & entry.devices for other in before[:index])
        else:
            blocked = any(other.lease_id in remaining and other.devices & entry.devices for other in before[:index])
            assert blocked or not wishes[int(entry.lease_id)][2]


def test_an_unknown_priority_cannot_enter():
    with pytest.raises(ValueError):
        filled(waiting("1", priority="urgent")).order()
