"""One arbiter a device, whoever asks."""

from __future__ import annotations

import os
import pwd
import socket

import pytest

from jupyter_vgpu.arbiter.client import ArbiterUnavailable
from tests.waiting import until


@pytest.fixture
def first(make_arbiter):
    return make_arbiter(name="a").start()


@pytest.fixture
def second(make_arbiter, first):
    return make_arbiter(name="b").start()


def managed_by(arbiter) -> list:
    return [device["managed_by"] for device in arbiter.client.pool()["devices"]]


def test_a_second_arbiter_shows_who_manages_the_devices_and_lends_none(first, second):
    name = pwd.getpwuid(os.getuid()).pw_name
    assert managed_by(first) == [None, None]
    assert managed_by(second) == [f"pid {first.process.pid} of {name}"] * 2
    pool = second.client.pool()
    assert "managed by another arbiter" in pool["message"] and str(first.process.pid) in pool["message"]
    with pytest.raises(ArbiterUnavailable, match=f"pid {first.process.pid}"):
        second.client.create_lease(name="n")


def test_a_device_that_becomes_free_is_taken_within_two_seconds(first, second):
    first.kill()
    until(lambda: managed_by(second) == [None, None], within=2)
    assert second.client.create_lease(name="n")["lease"]["parts"]


def test_devices_that_the_policy_does_not_use_are_left_to_others(make_arbiter):
    first = make_arbiter(name="a", policy="devices: [0]\n").start()
    second = make_arbiter(name="b").start()
    assert [device["uuid"] for device in first.client.pool()["devices"]] == [first.uuids[0]]
    assert managed_by(second) == [f"pid {first.process.pid} of {pwd.getpwuid(os.getuid()).pw_name}", None]
    lease = second.client.create_lease(name="n")["lease"]
    assert [part["device"] for part in lease["parts"]] == [first.uuids[1]]


def test_many_questions_do_not_exhaust_the_holder(first):
    address = f"\0jupyter-vgpu/device/{first.uuids[0]}"
    for _ in range(200):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as question:
            question.connect(address)
    assert managed_by(first) == [None, None]
