"""Idle or active, at explicit times."""

from __future__ import annotations

from jupyter_vgpu.arbiter.activity import LAUNCH_RECENT, Activity


def test_an_open_cell_is_active_however_long_it_runs():
    activity = Activity(since=0)
    activity.report(1, now=10)
    assert activity.idle_since(now=1e9) is None


def test_the_idle_clock_starts_when_the_last_cell_closes():
    activity = Activity(since=0)
    activity.report(2, now=10)
    activity.report(1, now=20)
    assert activity.idle_since(now=20) is None
    activity.report(0, now=30)
    assert activity.idle_since(now=99) == 30


def test_reports_of_no_open_cell_do_not_restart_the_idle_clock():
    activity = Activity(since=5)
    for now in (10, 20, 30):
        activity.report(0, now=now)
    assert activity.idle_since(now=40) == 5


def test_launches_after_the_cell_are_activity_for_a_while():
    activity = Activity(since=0)
    activity.report(1, now=10)
    activity.report(0, now=20)
    activity.observe_launches(1000, now=30)
    assert activity.idle_since(now=30 + LAUNCH_RECENT - 0.1) is None
    assert activity.idle_since(now=30 + LAUNCH_RECENT) == 30


def test_the_same_or_a_smaller_count_is_no_launch():
    activity = Activity(since=0)
    activity.observe_launches(1000, now=10)
    activity.observe_launches(1000, now=20)
    activity.observe_launches(400, now=30)  # a process with its counter ended
    assert activity.idle_since(now=40) == 10
    activity.observe_launches(401, now=50)
    assert activity.idle_since(now=50) is None


def test_a_command_that_nobody_reports_on_is_judged_by_its_launches():
    activity = Activity(since=100)
    assert activity.idle_since(now=100) == 100
    activity.observe_launches(1, now=200)
    assert activity.idle_since(now=201) is None
