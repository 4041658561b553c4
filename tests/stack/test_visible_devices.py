"""What a tenant sets in CUDA_VISIBLE_DEVICES indexes into its lease."""

from __future__ import annotations

import pytest

from tests.stack.stack import CONTEXT, GIB, Stack


@pytest.mark.parametrize(
    ("visible", "order"),
    [
        (None, [0, 1]),
        ("0", [0]),
        ("1", [1]),
        ("1,0", [1, 0]),
        ("{1}", [1]),
        ("{1},{0}", [1, 0]),
        ("{1:12}", [1]),
        ("0,9,1", [0]),
    ],
)
def test_cuda_shows_the_chosen_devices_and_nvml_the_leases(stack: Stack, visible: str | None, order: list[int]) -> None:
    uuids = [device["uuid"] for device in stack.client.pool()["devices"]]
    environ = {}
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible.replace("{0}", uuids[0]).replace("{1}", uuids[1]).replace("{1:12}", uuids[1][:12])
    tenant = stack.tenant(memory=4 * GIB, environ=environ)
    tenant.init()
    assert tenant.devices() == [uuids[index] for index in order]
    nvml = tenant.nvml()
    assert [device["uuid"] for device in nvml] == uuids, "NVML lists the lease's devices whatever CUDA_VISIBLE_DEVICES says"

    last = len(order) - 1
    tenant.enter(last)
    tenant.allocate(GIB)
    used = [0, 0]
    used[order[last]] = GIB + CONTEXT
    assert [stack.used(0), stack.used(1)] == used, "the memory is on the device that was chosen"
    assert [device["memory"][0][1] for device in tenant.nvml()] == used
    assert [part["memory_used"] for part in tenant.lease["parts"]] == used
    assert tenant.memory() == [3 * GIB - CONTEXT, 4 * GIB]


def test_none_of_the_leases_devices_is_no_device(stack: Stack) -> None:
    tenant = stack.tenant(environ={"CUDA_VISIBLE_DEVICES": "-1"})
    with pytest.raises(Exception, match="^NO_DEVICE$"):
        tenant.init()


def test_a_lease_of_one_device_shows_that_one_as_the_first(stack: Stack) -> None:
    second = stack.device(1)["uuid"]
    tenant = stack.tenant(memory=4 * GIB)
    tenant.patch(device=second)
    tenant.enter()
    assert tenant.devices() == [second]
    assert [device["uuid"] for device in tenant.nvml()] == [second]
    assert [stack.used(0), stack.used(1)] == [0, CONTEXT]
