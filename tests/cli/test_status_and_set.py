from __future__ import annotations

import json

import pytest

from jupyter_vgpu.cli import main
from jupyter_vgpu.cli.set import find_lease, parse_change
from jupyter_vgpu.cli.status import describe
from jupyter_vgpu.pool.model import InvalidValue
from tests.cli.conftest import GIB, lease, pool


def test_json_is_the_snapshot_itself(arbiter, capsys):
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == arbiter.snapshot


def test_status_shows_devices_leases_queue_and_policy():
    snapshot = pool(
        leases=[lease(), lease("lease-2", state="queued", message="waits for memory")],
        queue=[{"lease_id": "lease-2", "position": 1, "reason": "4 GiB are missing", "since": 0.0}],
        policy={"source": "/etc/policy.yaml", "revision": 3, "error": "line 4: memroy is not a key", "policy": {}},
    )
    text = describe(snapshot)
    for expected in ("Test GPU", "1 GiB of 16 GiB", "1 GiB of 8 GiB", "25%", "lease-2: waits for memory", "4 GiB are missing", "memroy"):
        assert expected in text


def test_status_says_who_manages_a_device_and_who_uses_one_unmanaged():
    snapshot = pool()
    other = {**snapshot["devices"][0], "uuid": "GPU-2", "index": 1, "managed_by": "pid 123 of bob"}
    snapshot["devices"][0].update(memory_unmanaged=GIB, unmanaged=[{"pid": 99, "name": "x", "memory_used": GIB}])
    text = describe({**snapshot, "devices": [snapshot["devices"][0], other]})
    assert "managed by pid 123 of bob" in text
    assert "1 GiB unmanaged (pid 99)" in text


def test_empty_pool_shows_its_reason():
    assert "NVML finds no GPU" in describe(pool(devices=[], leases=[], message="NVML finds no GPU"))


def test_set_finds_the_lease_by_the_beginning_of_its_kernels_id_and_sends_the_change(arbiter, capsys):
    assert main(["set", "kernel-of", "memory=4GiB", "compute=0.5", "compute_cap=none"]) == 0
    assert arbiter.changes == [("lease-1", {"memory": "4GiB", "compute": 0.5, "compute_cap": None})]
    assert "lease-1" in capsys.readouterr().out


def test_refused_change_is_the_arbiters_sentence_and_status_1(arbiter, capsys):
    assert main(["set", "lease-1", "memory=999TiB"]) == 1
    assert capsys.readouterr().err == "jupyter vgpu: memory: '999TiB' is not allowed; allowed: at most 16 GiB\n"
    assert arbiter.changes == []


@pytest.mark.parametrize("wanted", ["lease", "none-such"])
def test_id_of_none_or_several_is_refused_with_the_ids_that_there_are(wanted):
    with pytest.raises(InvalidValue, match="one of lease-1, lease-2"):
        find_lease([lease(), lease("lease-2")], wanted)


def test_full_id_wins_over_a_longer_one_that_begins_with_it():
    assert find_lease([lease("lease-1"), lease("lease-11")], "lease-1") == "lease-1"


@pytest.mark.parametrize("words", [["memory"], ["memory="], ["=1"], ["memory=1GiB", "memory=2GiB"]])
def test_word_that_is_no_change_is_refused(words):
    with pytest.raises(InvalidValue):
        parse_change(words)
