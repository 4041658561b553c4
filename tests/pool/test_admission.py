from dataclasses import replace

import pytest

from jupyter_vgpu.pool.admission import admissible, change, grant
from jupyter_vgpu.pool.model import NO_CAP, InvalidValue, LeaseRequest
from jupyter_vgpu.pool.policy import Policy

from .values import GIB, MIB, NO_POLICY, NOTHING_ASKED, TWO, device, lease

CLASSES = {
    "small": {"memory": "4GiB", "memory_guarantee": "2GiB", "compute": 0.25, "devices": 1},
    "large": {"memory": "75%", "memory_guarantee": "8GiB", "compute": 0.5, "compute_cap": 0.75},
    "night": {"memory": "100%", "compute": 0.1, "priority": "batch", "devices": 1},
}
LAB = Policy(default_class="small", classes=CLASSES)


def granted(request=NOTHING_ASKED, *, policy=NO_POLICY, devices=TWO, leases=(), **options):
    return grant(request, policy=policy, devices=devices, leases=leases, **options)


def refused(action, *arguments, **options) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        action(*arguments, **options)
    return caught.value


# Granting


def test_without_policy_and_request_a_tenant_has_the_whole_of_every_device():
    given = granted()
    assert [(part.device, part.memory, part.memory_guarantee, part.compute, part.compute_cap) for part in given.parts] == [
        (each.uuid, each.memory_total, 0, 1.0, None) for each in TWO
    ]
    assert (given.priority, given.lease_class, given.message) == ("interactive", None, None)


def test_what_is_asked_for_within_the_device_is_granted_without_a_message():
    given = granted(LeaseRequest(memory="8GiB", compute=0.25, compute_cap="50%", priority="batch"))
    assert {(part.memory, part.compute, part.compute_cap) for part in given.parts} == {(8 * GIB, 0.25, 0.5)}
    assert (given.priority, given.message) == ("batch", None)


def test_a_share_is_of_both_memory_and_compute_and_either_can_be_given_beside_it():
    assert {(part.memory, part.compute) for part in granted(LeaseRequest(share=0.5)).parts} == {(8 * GIB, 0.5)}
    assert {(part.memory, part.compute) for part in granted(LeaseRequest(share=0.5, memory="2GiB")).parts} == {(2 * GIB, 0.5)}
    assert {(part.memory, part.compute) for part in granted(LeaseRequest(share=0.5, compute=0.1)).parts} == {(8 * GIB, 0.1)}


def test_the_default_class_and_a_chosen_class_shape_the_lease():
    small, large = granted(policy=LAB), granted(LeaseRequest(lease_class="large"), policy=LAB)
    assert [(part.memory, part.memory_guarantee, part.compute) for part in small.parts] == [(4 * GIB, 2 * GIB, 0.25)]
    assert small.lease_class == "small"
    assert [(part.memory, part.compute_cap) for part in large.parts] == [(12 * GIB, 0.75)] * 2
    assert granted(LeaseRequest(lease_class="night"), policy=LAB).priority == "batch"


def test_a_guarantee_never_exceeds_the_limit_that_was_asked_for():
    (part,) = granted(LeaseRequest(memory="1GiB"), policy=LAB).parts
    assert (part.memory, part.memory_guarantee) == (GIB, GIB)


# (request, field, what the person has to read)
BAD = [
    (LeaseRequest(lease_class="smal"), "class", "did you mean small?"),
    (LeaseRequest(lease_class=3), "class", "large, night, small"),
    (LeaseRequest(memory="8 apples"), "memory", "8GiB"),
    (LeaseRequest(memory="17GiB"), "memory", "at most 16 GiB"),
    (LeaseRequest(memory="-1GiB"), "memory", "8GiB"),
    (LeaseRequest(memory="1KiB"), "memory", "at least 1 MiB"),
    (LeaseRequest(share=0), "share", "0.01 to 1.0"),
    (LeaseRequest(share=2), "share", "0.01 to 1.0"),
    (LeaseRequest(compute="much"), "compute", "0.01 to 1.0"),
    (LeaseRequest(compute_cap=0), "compute_cap", "or none"),
    (LeaseRequest(priority="urgent"), "priority", "interactive, batch"),
    (LeaseRequest(device="7"), "device", TWO[0].uuid),
    (LeaseRequest(device="0,1"), "device", "1 at most"),
    (LeaseRequest(visible_devices="0,7"), "visible_devices", TWO[0].uuid),
]


@pytest.mark.parametrize(("request_", "field", "allowed"), BAD)
def test_a_strict_request_that_is_wrong_is_refused_by_field_value_and_what_is_allowed(request_, field, allowed):
    error = refused(granted, request_, policy=LAB, strict=True)
    given = request_.lease_class if field == "class" else getattr(request_, field)
    assert (error.field, error.value, error.code) == (field, given, "invalid")
    assert allowed in error.allowed
    assert field in str(error) and repr(given) in str(error)


@pytest.mark.parametrize(("request_", "field", "allowed"), BAD)
def test_otherwise_the_same_request_gets_a_lease_and_a_visible_reason(request_, field, allowed):
    given = granted(request_, policy=LAB)
    assert len(given.parts) == 1
    assert f"{field}: " in given.message and allowed in given.message
    untouched = granted(policy=LAB)
    assert (given.parts[0].compute, given.priority) == (untouched.parts[0].compute, untouched.priority)


def test_more_than_the_device_is_clamped_to_it():
    given = granted(LeaseRequest(memory="17GiB"))
    assert {part.memory for part in given.parts} == {16 * GIB}
    assert "16 GiB is used" in given.message


def test_on_unlike_devices_only_a_size_that_no_device_has_is_refused():
    unlike = (device(0, gib=16), device(1, gib=80))
    given = granted(LeaseRequest(memory="24GiB"), devices=unlike, strict=True)
    assert [part.memory for part in given.parts] == [16 * GIB, 24 * GIB]
    assert refused(granted, LeaseRequest(memory="81GiB"), devices=unlike, strict=True).field == "memory"


def test_the_policys_bounds_hold_for_class_and_request():
    policy = Policy(bounds={"memory": "4GiB", "compute": 0.5, "compute_cap": 0.8})
    assert {(part.memory, part.compute, part.compute_cap) for part in granted(policy=policy).parts} == {(4 * GIB, 0.5, 0.8)}
    assert granted(policy=policy).message is None
    given = granted(LeaseRequest(memory="8GiB", compute=0.9, compute_cap=NO_CAP), policy=policy)
    assert {(part.memory, part.compute, part.compute_cap) for part in given.parts} == {(4 * GIB, 0.5, 0.8)}
    assert all(f"{field}: " in given.message for field in ("memory", "compute", "compute_cap"))
    for request in (
        LeaseRequest(memory="8GiB"),
        LeaseRequest(compute=0.9),
        LeaseRequest(compute_cap=0.9),
        LeaseRequest(compute_cap=NO_CAP),
    ):
        assert "bounds" in refused(granted, request, policy=policy, strict=True).allowed


def test_a_share_above_the_bounds_is_reported_as_the_share():
    error = refused(granted, LeaseRequest(share=0.9), policy=Policy(bounds={"compute": 0.5}), strict=True)
    assert (error.field, error.value) == ("share", 0.9)


def test_what_the_pool_leaves_to_others_is_nobodys_limit():
    given = granted(LeaseRequest(memory="16GiB"), policy=Policy(device_memory="75%"))
    assert {part.memory for part in given.parts} == {12 * GIB}
    assert {part.memory for part in granted(LeaseRequest(share=0.5), policy=Policy(device_memory="75%")).parts} == {6 * GIB}


def test_a_limit_below_what_a_context_takes_is_hopeless_and_refused_with_the_figure():
    request = LeaseRequest(memory="256MiB")
    error = refused(granted, request, strict=True, context_memory=300 * MIB)
    assert (error.field, error.value) == ("memory", "256MiB")
    assert "at least 300 MiB" in error.allowed
    given = granted(request, context_memory=300 * MIB)
    assert {part.memory for part in given.parts} == {16 * GIB} and "at least 300 MiB" in given.message
    assert {part.memory for part in granted(request, strict=True, context_memory=200 * MIB).parts} == {256 * MIB}


def test_a_class_that_is_hopeless_is_granted_and_says_so():
    given = granted(policy=Policy(default_class="tiny", classes={"tiny": {"memory": "100MiB"}}), strict=True, context_memory=300 * MIB)
    assert "100 MiB" in given.message and "300 MiB" in given.message


def test_the_users_cuda_visible_devices_selects_and_orders_the_devices():
    assert [part.device for part in granted(LeaseRequest(visible_devices="1,0")).parts] == [TWO[1].uuid, TWO[0].uuid]
    assert [part.device for part in granted(LeaseRequest(visible_devices="1"), policy=LAB).parts] == [TWO[1].uuid]
    none = granted(LeaseRequest(visible_devices="-1"))
    assert (none.parts, none.message) == ((), None)


def test_devices_that_others_hold_are_left_out_with_the_reason_even_when_strict():
    devices = (device(0, managed_by="pid 7 (bob)"), device(1))
    for strict in (False, True):
        given = granted(devices=devices, strict=strict)
        assert [part.device for part in given.parts] == [devices[1].uuid]
        assert "pid 7 (bob)" in given.message
    assert granted(devices=devices[:1]).parts == ()


def test_without_any_device_a_request_is_granted_nothing_and_nothing_fails():
    assert granted(LeaseRequest(memory="8GiB"), devices=()).parts == ()


def test_a_device_asked_for_is_the_one_that_is_given():
    assert [part.device for part in granted(LeaseRequest(device="1"), policy=LAB).parts] == [TWO[1].uuid]


# Changing


def changed(lease, request, *, policy=NO_POLICY, devices=TWO, leases=(), used=None, attached=False, **options):
    return change(lease, request, policy=policy, devices=devices, leases=leases, used=used or {}, attached=attached, **options)


def test_only_what_is_asked_for_changes():
    mine = lease(LeaseRequest(memory="8GiB", compute=0.5, compute_cap=0.6, priority="batch"))
    given = changed(mine, LeaseRequest(memory="4GiB"))
    assert given == replace(mine.grant, parts=tuple(replace(part, memory=4 * GIB) for part in mine.grant.parts))
    given = changed(mine, LeaseRequest(compute=0.25))
    assert {(part.memory, part.compute, part.compute_cap) for part in given.parts} == {(8 * GIB, 0.25, 0.6)}
    assert changed(mine, LeaseRequest(priority="interactive")).priority == "interactive"


def test_a_cap_is_taken_away_by_its_own_word():
    given = changed(lease(LeaseRequest(compute_cap=0.5)), LeaseRequest(compute_cap=NO_CAP))
    assert {part.compute_cap for part in given.parts} == {None}


def test_the_message_of_the_grant_is_gone_after_a_change():
    mine = lease(LeaseRequest(memory="99GiB"))
    assert mine.grant.message and changed(mine, LeaseRequest(memory="1GiB")).message is None


@pytest.mark.parametrize(("request_", "field", "allowed"), BAD[:-1])
def test_a_wrong_change_is_refused_as_a_whole(request_, field, allowed):
    mine = lease(policy=LAB)
    error = refused(changed, mine, replace(request_, compute=request_.compute or 0.5), policy=LAB)
    assert (error.field, error.code) == (field, "invalid")
    assert allowed in error.allowed


def test_a_shrink_below_what_is_in_use_is_refused_with_the_figure():
    mine = lease(admitted=True)
    error = refused(changed, mine, LeaseRequest(memory="4GiB", compute=0.5), used={TWO[1].uuid: 5 * GIB}, attached=True)
    assert (error.field, error.value, error.code) == ("memory", "4GiB", "conflict")
    assert "at least 5 GiB" in str(error) and "device 1" in str(error)
    assert {part.memory for part in changed(mine, LeaseRequest(memory="5GiB"), used={TWO[1].uuid: 5 * GIB}, attached=True).parts} == {
        5 * GIB
    }


def test_growth_is_welcome_though_more_is_in_use_than_the_limit():
    mine = lease(LeaseRequest(memory="4GiB"), admitted=True)
    given = changed(mine, LeaseRequest(memory="5GiB"), used={TWO[0].uuid: 6 * GIB}, attached=True)
    assert {part.memory for part in given.parts} == {5 * GIB}


def test_a_hopeless_limit_is_refused():
    error = refused(changed, lease(), LeaseRequest(memory="100MiB"), context_memory=300 * MIB)
    assert "at least 300 MiB" in error.allowed


def test_a_class_sets_everything_and_what_comes_with_it_goes_on_top():
    mine = lease(LeaseRequest(memory="1GiB", compute=0.9), policy=LAB)
    given = changed(mine, LeaseRequest(lease_class="large", compute=0.1), policy=LAB)
    assert [(part.memory, part.memory_guarantee, part.compute, part.compute_cap) for part in given.parts] == [
        (12 * GIB, 8 * GIB, 0.1, 0.75)
    ] * 2
    assert given.lease_class == "large"


def test_devices_change_freely_before_the_first_context_and_not_after_it():
    mine = lease(policy=LAB)
    assert [part.device for part in changed(mine, LeaseRequest(device=TWO[1].uuid), policy=LAB).parts] == [TWO[1].uuid]
    for request, field in ((LeaseRequest(device=TWO[1].uuid), "device"), (LeaseRequest(lease_class="large"), "class")):
        error = refused(changed, mine, request, policy=LAB, attached=True)
        assert (error.field, error.code) == (field, "conflict")
        assert TWO[0].uuid in error.allowed


def test_a_class_with_as_many_devices_can_be_taken_at_any_time():
    mine = lease(policy=LAB, admitted=True)
    given = changed(mine, LeaseRequest(lease_class="night"), policy=LAB, attached=True, used={TWO[0].uuid: GIB})
    assert [(part.device, part.memory) for part in given.parts] == [(TWO[0].uuid, 16 * GIB)]
    error = refused(
        changed, replace(mine, grant=given), LeaseRequest(lease_class="small"), policy=LAB, attached=True, used={TWO[0].uuid: 5 * GIB}
    )
    assert (error.field, error.value, error.code) == ("class", "small", "conflict")


def test_asking_for_the_devices_one_has_is_no_change_of_devices():
    mine = lease(policy=LAB)
    assert changed(mine, LeaseRequest(device="0"), policy=LAB, attached=True) == mine.grant


def test_a_limit_of_ones_own_moves_along_and_the_classs_is_the_classs_over_there():
    unlike = (device(0, gib=16), device(1, gib=80))
    policy = Policy(default_class="half", classes={"half": {"memory": "50%", "devices": 1}})
    by_class = lease(policy=policy, devices=unlike, leases=[lease(LeaseRequest(device="1", memory="79GiB"), devices=unlike)])
    own = replace(by_class, grant=changed(by_class, LeaseRequest(memory="3GiB", compute=0.3), policy=policy, devices=unlike))
    assert by_class.grant.parts[0].device == unlike[0].uuid
    assert changed(by_class, LeaseRequest(device="1"), policy=policy, devices=unlike).parts[0].memory == 40 * GIB
    moved = changed(own, LeaseRequest(device="1"), policy=policy, devices=unlike).parts[0]
    assert (moved.memory, moved.compute) == (3 * GIB, 0.3)


def test_a_device_of_another_arbiter_cannot_be_taken():
    devices = (device(0), device(1, managed_by="pid 7 (bob)"))
    error = refused(changed, lease(devices=devices), LeaseRequest(device="1"), devices=devices)
    assert (error.field, error.code) == ("device", "conflict") and "pid 7 (bob)" in str(error)


def test_a_lease_without_devices_has_nothing_to_resize_and_may_get_a_device():
    mine = lease(LeaseRequest(visible_devices="-1"))
    assert refused(changed, mine, LeaseRequest(memory="1GiB")).code == "conflict"
    assert [part.memory for part in changed(mine, LeaseRequest(device="0")).parts] == [16 * GIB]


def test_a_lease_whose_device_is_gone_is_left_as_it_is():
    mine = lease(policy=LAB)
    error = refused(changed, mine, LeaseRequest(memory="1GiB"), policy=LAB, devices=TWO[1:])
    assert (error.field, error.code) == ("device", "conflict") and TWO[0].uuid in str(error)
    assert [part.device for part in changed(mine, LeaseRequest(device="1"), policy=LAB, devices=TWO[1:]).parts] == [TWO[1].uuid]


def test_an_admitted_lease_grows_only_within_what_is_left():
    policy = Policy(oversubscription=1.0)
    mine = lease(LeaseRequest(memory="4GiB"), id="a", policy=policy, admitted=True)
    other = lease(LeaseRequest(memory="8GiB"), id="b", policy=policy, admitted=True)
    assert changed(mine, LeaseRequest(memory="8GiB"), policy=policy, leases=[mine, other])
    error = refused(changed, mine, LeaseRequest(memory="9GiB"), policy=policy, leases=[mine, other])
    assert (error.field, error.value, error.code) == ("memory", "9GiB", "conflict") and "8 GiB left" in str(error)
    assert changed(replace(mine, admitted=False), LeaseRequest(memory="9GiB"), policy=policy, leases=[mine, other])


def test_a_shrink_is_welcome_even_where_the_policy_has_become_too_tight_for_all():
    mine, other = (lease(LeaseRequest(memory="12GiB"), id=id, admitted=True) for id in "ab")
    assert changed(mine, LeaseRequest(memory="10GiB"), policy=Policy(oversubscription=1.0), leases=[mine, other])


def test_a_limit_that_was_small_for_a_while_gets_its_guarantee_back():
    mine = lease(policy=LAB)
    small = replace(mine, grant=changed(mine, LeaseRequest(memory="1GiB"), policy=LAB))
    assert small.grant.parts[0].memory_guarantee == GIB
    assert changed(small, LeaseRequest(memory="3GiB"), policy=LAB).parts[0].memory_guarantee == 2 * GIB


# Admitting


def test_without_a_policy_nobody_waits():
    leases = [lease(id=str(number), admitted=True) for number in range(50)]
    assert admissible(lease(id="new"), policy=Policy(), devices=TWO, leases=leases) is None


def test_limits_beyond_the_oversubscription_wait_with_the_figures():
    policy = Policy(oversubscription=1.5)
    leases = [lease(LeaseRequest(memory="16GiB"), id="a", policy=policy, admitted=True)]
    assert admissible(lease(LeaseRequest(memory="8GiB"), id="b"), policy=policy, devices=TWO, leases=leases) is None
    reason = admissible(lease(LeaseRequest(memory="9GiB"), id="b"), policy=policy, devices=TWO, leases=leases)
    assert "9 GiB" in reason and "8 GiB left" in reason and "device 0" in reason


def test_guarantees_beyond_the_device_wait_whatever_the_oversubscription():
    policy = Policy(classes={"c": {"memory_guarantee": "6GiB", "devices": 1}}, default_class="c", devices=[0])
    leases = [lease(id=str(number), policy=policy, admitted=True) for number in range(2)]
    reason = admissible(lease(id="new", policy=policy), policy=policy, devices=TWO, leases=leases)
    assert "6 GiB" in reason and "4 GiB left to guarantee" in reason


def test_only_admitted_leases_take_room_and_a_lease_does_not_stand_in_its_own_way():
    policy = Policy(oversubscription=1.0)
    waiting, mine = lease(id="w"), lease(id="m")
    assert admissible(mine, policy=policy, devices=TWO, leases=[waiting, mine]) is None
    assert admissible(replace(mine, admitted=True), policy=policy, devices=TWO, leases=[waiting, replace(mine, admitted=True)]) is None


def test_a_lease_on_a_lost_or_foreign_device_waits_with_the_reason():
    mine = lease()
    assert TWO[0].uuid in admissible(mine, policy=Policy(), devices=TWO[1:], leases=[])
    foreign = (device(0, managed_by="pid 7 (bob)"), device(1))
    assert "pid 7 (bob)" in admissible(mine, policy=Policy(), devices=foreign, leases=[])
