"""Edits of the policy file while the arbiter runs, by every kind of editor."""

from __future__ import annotations

import os
import threading

import pytest

from jupyter_vgpu.arbiter.policy_file import SYSTEM_POLICY, candidates
from tests.arbiter.conftest import GIB
from tests.waiting import until

SMALL = "default_class: small\nclasses:\n  small: {memory: 2GiB}\n"
LARGE = "default_class: large\nclasses:\n  large: {memory: 6GiB}\n"


@pytest.fixture
def arbiter(make_arbiter):
    return make_arbiter(policy=SMALL).start()


def new_memory(arbiter) -> int:
    created = arbiter.client.create_lease(name="n")
    arbiter.client.release(created["lease"]["id"])
    return created["lease"]["parts"][0]["memory"]


def write_in_place(path, text):
    path.write_text(text)


def rename_over(path, text):
    temporary = path.with_name(".policy.swp")
    temporary.write_text(text)
    os.replace(temporary, path)


def move_away_and_write(path, text):
    path.rename(path.with_suffix(".yaml~"))
    path.write_text(text)


@pytest.mark.parametrize("edit", [write_in_place, rename_over, move_away_and_write])
def test_an_edit_is_in_force_within_moments(arbiter, edit):
    assert new_memory(arbiter) == 2 * GIB
    edit(arbiter.policy, LARGE)
    until(lambda: new_memory(arbiter) == 6 * GIB, within=5)
    state = arbiter.client.policy()
    assert (state["source"], state["error"]) == (str(arbiter.policy), None)
    assert state["policy"]["default_class"] == "large"


@pytest.mark.parametrize(
    "broken", ["default_clas: small\n", "classes: [", "default_class: nope\n", "\x00", "classes:\n  s: {memory: 8Gibibits}\n"]
)
def test_an_invalid_edit_leaves_the_last_good_policy_in_force_and_shows_everywhere(arbiter, broken):
    events, subscribed = [], threading.Event()
    stream = arbiter.client.events(subscribed=subscribed.set)
    reader = threading.Thread(target=lambda: events.append(next(stream)), daemon=True)
    reader.start()
    before = arbiter.client.policy()
    assert subscribed.wait(10)
    rename_over(arbiter.policy, broken)
    state = until(lambda: (now := arbiter.client.policy())["error"] and now, within=5)
    assert (state["policy"], state["revision"]) == (before["policy"], before["revision"])
    assert str(arbiter.policy) in state["error"] and "stays in force" in state["error"]
    assert arbiter.client.pool()["policy"]["error"] == state["error"]
    assert new_memory(arbiter) == 2 * GIB
    reader.join(timeout=10)
    assert (events[0]["type"], events[0]["message"]) == ("policy_error", state["error"])
    assert state["error"] in arbiter.log()
    rename_over(arbiter.policy, LARGE)
    until(lambda: arbiter.client.policy()["error"] is None, within=5)
    assert new_memory(arbiter) == 6 * GIB


def test_a_named_file_that_does_not_exist_is_an_error_until_it_appears(make_arbiter):
    arbiter = make_arbiter(policy=SMALL)
    arbiter.policy.unlink()
    arbiter.start()
    assert "VGPU_POLICY" in arbiter.client.policy()["error"]
    arbiter.policy.write_text(SMALL)
    until(lambda: new_memory(arbiter) == 2 * GIB, within=5)
    assert arbiter.client.policy()["error"] is None


def test_a_users_file_may_appear_later_with_its_directories_and_vanish_again(make_arbiter):
    arbiter = make_arbiter().start()
    assert arbiter.client.policy()["source"] is None
    path = arbiter.directory / "config" / "jupyter-vgpu" / "policy.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(SMALL)
    until(lambda: arbiter.client.policy()["source"] == str(path), within=5)
    assert new_memory(arbiter) == 2 * GIB
    path.unlink()
    until(lambda: arbiter.client.policy()["source"] is None, within=5)
    assert new_memory(arbiter) == 16 * GIB


def test_existing_leases_keep_what_they_were_given(arbiter):
    created = arbiter.client.create_lease(name="n")
    rename_over(arbiter.policy, LARGE)
    until(lambda: arbiter.client.policy()["revision"] == 2, within=5)
    assert arbiter.client.lease(created["lease"]["id"])["parts"][0]["memory"] == 2 * GIB


def test_where_a_policy_is_looked_for(tmp_path):
    assert candidates({"VGPU_POLICY": "/x/p.yaml", "XDG_CONFIG_HOME": "/c"}) == [type(SYSTEM_POLICY)("/x/p.yaml")]
    assert [str(path) for path in candidates({"XDG_CONFIG_HOME": "/c", "HOME": "/h"})] == [
        str(SYSTEM_POLICY),
        "/c/jupyter-vgpu/policy.yaml",
    ]
    assert str(candidates({"HOME": "/h"})[1]) == "/h/.config/jupyter-vgpu/policy.yaml"
