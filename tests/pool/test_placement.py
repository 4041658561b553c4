import pytest

from jupyter_vgpu.pool.model import InvalidValue, LeaseRequest
from jupyter_vgpu.pool.placement import find, place, requested, unusable, visible
from jupyter_vgpu.pool.policy import Policy

from .values import GIB, TWO, device, lease

FOUR = tuple(device(index) for index in range(4))


def indexes(devices):
    return [each.index for each in devices]


def at_most(gib, devices=FOUR):
    return {each.uuid: gib * GIB for each in devices}


def on(index, *, gib, id="x"):
    return lease(LeaseRequest(device=str(index), memory=gib * GIB), id=id, devices=FOUR)


def test_a_lease_for_all_devices_gets_all_in_pool_order():
    assert place(FOUR, count="all", memory=at_most(1), policy=Policy(), leases=[]) == FOUR
    assert place(FOUR, count=9, memory=at_most(1), policy=Policy(), leases=[]) == FOUR


def test_on_an_empty_pool_the_lowest_index_comes_first():
    assert indexes(place(FOUR, count=2, memory=at_most(1), policy=Policy(), leases=[])) == [0, 1]


def test_the_devices_with_the_most_unpromised_memory_come_first():
    leases = [on(0, gib=8), on(1, gib=2), on(2, gib=4), on(3, gib=1)]
    assert indexes(place(FOUR, count=1, memory=at_most(1), policy=Policy(), leases=leases)) == [3]
    assert indexes(place(FOUR, count=2, memory=at_most(1), policy=Policy(), leases=leases)) == [1, 3]


def test_leases_that_start_together_spread_though_none_is_admitted():
    leases = []
    for number in range(4):
        (chosen,) = place(FOUR, count=1, memory=at_most(4), policy=Policy(), leases=leases)
        leases.append(on(chosen.index, gib=4, id=str(number)))
    assert sorted(each.grant.parts[0].device for each in leases) == sorted(each.uuid for each in FOUR)


def test_a_device_that_holds_the_limit_goes_before_a_freer_one_that_does_not():
    small, large = device(0, gib=16), device(1, gib=80)
    taken = [lease(LeaseRequest(device="1", memory=70 * GIB), devices=(small, large))]
    assert place((small, large), count=1, memory=at_most(24, (small, large)), policy=Policy(), leases=taken) == (large,)
    assert place((small, large), count=1, memory=at_most(12, (small, large)), policy=Policy(), leases=taken) == (small,)


def test_what_the_policy_leaves_to_others_is_not_free():
    small, large = device(0, gib=16), device(1, gib=20)
    assert place((small, large), count=1, memory={small.uuid: 1, large.uuid: 1}, policy=Policy(device_memory="12GiB"), leases=[]) == (
        small,
    )


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        (" ", []),
        ("-1", []),
        ("0", [0]),
        ("3,1", [3, 1]),
        ("3, 1", [3, 1]),
        ("0,1,-1,2", [0, 1]),
        ("00", [0]),
        (FOUR[2].uuid, [2]),
        (f"{FOUR[2].uuid},{FOUR[0].uuid}", [2, 0]),
        ("GPU-00000003", [3]),
    ],
)
def test_a_view_by_cuda_visible_devices_is_cudas(value, seen):
    devices, problem = visible(FOUR, value)
    assert indexes(devices) == seen
    assert problem is None


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("9", []),
        ("0,9,1", [0]),
        ("1,,2", [1]),
        ("NoDevFiles", []),
        ("1,nonsense,2", [1]),
        ("GPU-0000000", []),  # the beginning of all four
        ("GPU-f", []),
        ("1,1", []),
        ("0,1,0", []),
        ("9" * 5000, []),
        ("٣", []),
    ],
)
def test_a_wrong_cuda_visible_devices_shows_what_cuda_shows_and_says_what_is_wrong(value, seen):
    devices, problem = visible(FOUR, value)
    assert indexes(devices) == seen
    assert (problem.field, problem.value) == ("visible_devices", value)
    assert FOUR[0].uuid in problem.allowed


def test_a_number_counts_up_to_its_first_other_character_as_in_cuda():
    assert indexes(visible(FOUR, "1gpu2")[0]) == [1]


def test_a_full_uuid_names_its_device_though_it_begins_another():
    first, second = device(0), device(1)
    longer = type(second)(uuid=first.uuid + "0", index=1, name=second.name, memory_total=second.memory_total)
    assert find(first.uuid, (first, longer)) is first
    assert find(first.uuid[:-1], (first, longer)) is None


def test_devices_asked_for_by_name_come_in_that_order():
    assert indexes(requested("3, GPU-00000001", FOUR)) == [3, 1]


@pytest.mark.parametrize("value", ["", "9", "0,0", "0,", "gpu0", "GPU-0", 0, None, "1gpu"])
def test_a_device_that_does_not_exist_is_refused_with_those_that_do(value):
    with pytest.raises(InvalidValue) as caught:
        requested(value, TWO)
    assert (caught.value.field, caught.value.value) == ("device", value)
    assert TWO[0].uuid in caught.value.allowed and TWO[1].uuid in caught.value.allowed


def test_a_device_of_another_arbiter_or_outside_the_policy_cannot_be_handed_out():
    foreign = device(0, managed_by="pid 12 (alice)")
    assert "pid 12 (alice)" in unusable(foreign, Policy())
    assert "policy" in unusable(device(1), Policy(devices=[0]))
    assert unusable(device(1), Policy()) is None
