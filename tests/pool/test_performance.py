"""The rules run in the arbiter's event loop, so a full pool has to be decided in well under the time of a packet's round trip."""

from __future__ import annotations

import time

from jupyter_vgpu.pool.admission import admissible, change, grant
from jupyter_vgpu.pool.model import LeaseRequest
from jupyter_vgpu.pool.policy import Policy

from .values import device, lease

DEVICES = tuple(device(index, gib=80) for index in range(16))
POLICY = Policy(
    classes={"c": {"memory": "512MiB", "memory_guarantee": "256MiB"}, "one": {"memory": "4GiB", "devices": 1}},
    default_class="c",
    oversubscription=8,
)
LEASES = [lease(id=str(number), policy=POLICY, devices=DEVICES, admitted=True) for number in range(100)]


def best_of(rounds, action):
    """CPU seconds of the fastest round: the machine may be busy with something else, and the rule is not faster than it is."""
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        action()
        times.append(time.thread_time() - began)
    return min(times)


def test_a_hundred_leases_on_sixteen_devices_are_decided_within_a_millisecond():
    mine, one = LEASES[0], LeaseRequest(lease_class="one")
    decisions = {
        "grant": lambda: grant(one, policy=POLICY, devices=DEVICES, leases=LEASES),
        "grant of all": lambda: grant(LeaseRequest(memory="1GiB"), policy=POLICY, devices=DEVICES, leases=LEASES),
        "change": lambda: change(mine, LeaseRequest(memory="1GiB"), policy=POLICY, devices=DEVICES, leases=LEASES, used={}, attached=True),
        "admissible": lambda: admissible(mine, policy=POLICY, devices=DEVICES, leases=LEASES),
    }
    slow = {name: seconds for name, action in decisions.items() if (seconds := best_of(50, action)) >= 0.001}
    assert slow == {}
