"""What holds for any policy, any request and any sequence of events."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jupyter_vgpu.pool.admission import admissible, change, grant
from jupyter_vgpu.pool.model import NO_CAP, PRIORITIES, InvalidValue, Lease, LeaseRequest
from jupyter_vgpu.pool.policy import Policy

from .values import GIB, MIB, device

DEVICES = (device(0, gib=16), device(1, gib=16), device(2, gib=80))

sizes = st.one_of(st.integers(MIB, 100 * GIB), st.integers(1, 100).map(lambda gib: f"{gib}GiB"))
fractions = st.floats(0.01, 1.0)
amounts = st.one_of(sizes, fractions)
garbage = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.lists(st.integers(), max_size=2), st.binary(max_size=3)
)
requests = st.builds(
    LeaseRequest,
    lease_class=st.one_of(st.none(), st.sampled_from("abcx")),
    memory=st.one_of(st.none(), amounts),
    compute=st.one_of(st.none(), fractions),
    compute_cap=st.one_of(st.none(), fractions, st.just(NO_CAP)),
    share=st.one_of(st.none(), fractions),
    priority=st.one_of(st.none(), st.sampled_from(PRIORITIES)),
    device=st.one_of(st.none(), st.sampled_from(["0", "1", "2,0", "9", DEVICES[1].uuid])),
    visible_devices=st.one_of(st.none(), st.sampled_from(["", "-1", "1", "2,1,0", "0,9"])),
)
garbage_requests = st.builds(
    LeaseRequest,
    lease_class=garbage,
    memory=garbage,
    compute=garbage,
    compute_cap=garbage,
    share=garbage,
    priority=garbage,
    device=garbage,
    visible_devices=st.one_of(st.none(), st.text(max_size=20)),
)
changes = requests.map(lambda request: replace(request, visible_devices=None))


@st.composite
def classes(draw):
    if draw(st.booleans()):
        memory = draw(fractions)
        guarantee = draw(st.one_of(st.just(0), st.floats(0.01, memory)))
    else:
        memory = draw(st.integers(MIB, 100 * GIB))
        guarantee = draw(st.one_of(st.just(0), st.integers(MIB, memory)))
    return {
        "memory": memory,
        "memory_guarantee": guarantee,
        "compute": draw(fractions),
        "compute_cap": draw(st.one_of(st.none(), fractions)),
        "priority": draw(st.sampled_from(PRIORITIES)),
        "devices": draw(st.one_of(st.just("all"), st.integers(1, 4))),
    }


@st.composite
def policies(draw):
    named = draw(st.dictionaries(st.sampled_from("abc"), classes(), max_size=3))
    values = {
        "default_class": draw(st.sampled_from([None, *named])),
        "classes": named,
        "devices": draw(st.sampled_from(["all", (0, 2), (1,)])),
        "device_memory": draw(st.one_of(st.floats(0.3, 1.0), st.integers(8 * GIB, 90 * GIB))),
        "oversubscription": draw(st.one_of(st.none(), st.just(1.0), st.floats(1.0, 3.0))),
    }
    kinds = {"memory": amounts, "compute": fractions, "compute_cap": fractions}
    bounds = {key: draw(st.one_of(st.none(), kind)) for key, kind in kinds.items()}
    try:
        return Policy(**values, bounds=bounds)
    except ValueError:  # the bounds contradict a class
        return Policy(**values)


def assert_sound(parts, policy: Policy) -> None:
    by_uuid = {each.uuid: each for each in DEVICES}
    assert len({part.device for part in parts}) == len(parts)
    for part in parts:
        total = policy.pool_memory(by_uuid[part.device])
        assert 0 <= part.memory_guarantee <= part.memory <= total
        assert policy.bounds.memory is None or part.memory <= policy.bounds.memory.of(total)
        assert 0.01 <= part.compute <= (policy.bounds.compute or 1.0)
        assert part.compute_cap is None or 0.01 <= part.compute_cap <= 1.0
        assert policy.bounds.compute_cap is None or part.compute_cap <= policy.bounds.compute_cap


@settings(max_examples=300, deadline=None)
@given(request=st.one_of(requests, garbage_requests), policy=policies(), context=st.integers(0, GIB))
def test_any_request_gets_a_sound_lease_and_never_fails(request, policy, context):
    given_ = grant(request, policy=policy, devices=DEVICES, leases=[], context_memory=context)
    assert_sound(given_.parts, policy)
    assert given_.priority in PRIORITIES
    assert all(policy.uses(each) for each in DEVICES if each.uuid in {part.device for part in given_.parts})


@settings(max_examples=300, deadline=None)
@given(request=st.one_of(requests, garbage_requests), policy=policies())
def test_a_strict_request_is_granted_as_asked_or_refused_by_name(request, policy):
    try:
        given_ = grant(request, policy=policy, devices=DEVICES, leases=[], strict=True)
    except InvalidValue as error:
        assert error.field in ("class", "memory", "compute", "compute_cap", "share", "priority", "device", "visible_devices")
        assert error.allowed and error.field in str(error)
    else:
        relaxed = grant(request, policy=policy, devices=DEVICES, leases=[])
        assert (given_.parts, given_.priority) == (relaxed.parts, relaxed.priority)


@settings(deadline=None)
@given(memory=st.integers(MIB, 200 * GIB), compute=fractions, cap=fractions, policy=policies())
def test_a_clamp_never_gives_more_than_was_asked_for(memory, compute, cap, policy):
    given_ = grant(LeaseRequest(memory=memory, compute=compute, compute_cap=cap), policy=policy, devices=DEVICES, leases=[])
    for part in given_.parts:
        assert part.memory <= memory and part.compute <= compute and part.compute_cap <= cap


@settings(deadline=None)
@given(request=requests, policy=policies())
def test_a_difference_between_request_and_lease_has_a_message(request, policy):
    given_ = grant(request, policy=policy, devices=DEVICES, leases=[])
    if given_.message is None:
        assert request.compute is None or all(part.compute == request.compute for part in given_.parts)
        assert request.priority is None or given_.priority == request.priority
        if isinstance(request.memory, int) and given_.parts:
            # On unlike devices a size is the whole of the smaller one; somewhere it is what was asked for.
            assert max(part.memory for part in given_.parts) == request.memory


def assert_promises_fit(leases, policy: Policy) -> None:
    for each in DEVICES:
        parts = [part for lease in leases if lease.admitted for part in lease.grant.parts if part.device == each.uuid]
        total = policy.pool_memory(each)
        assert sum(part.memory_guarantee for part in parts) <= total
        assert policy.oversubscription is None or sum(part.memory for part in parts) <= total * policy.oversubscription


shrunk = st.builds(LeaseRequest, lease_class=st.sampled_from("ab"), share=st.floats(0.02, 0.3))
growths = st.builds(LeaseRequest, lease_class=st.sampled_from([None, "a", "b"]), share=st.one_of(st.none(), fractions))


@settings(max_examples=300, deadline=None)
@given(
    guarantees=st.tuples(fractions, fractions),
    oversubscription=st.one_of(st.none(), st.floats(1.0, 2.0)),
    wanted=st.lists(shrunk, min_size=2, max_size=6),
    growth=growths,
)
def test_no_growth_of_an_admitted_lease_breaks_a_promise_to_another(guarantees, oversubscription, wanted, growth):
    named = {name: {"memory_guarantee": guarantee} for name, guarantee in zip("ab", guarantees, strict=True)}
    policy = Policy(classes=named, oversubscription=oversubscription)
    leases: list[Lease] = []
    for number, request in enumerate(wanted):
        given_ = grant(request, policy=policy, devices=DEVICES, leases=leases)
        lease = Lease(id=str(number), grant=given_, name="", uid=1, owner="a", created=0.0, request=request)
        admitted = admissible(lease, policy=policy, devices=DEVICES, leases=leases) is None
        leases.append(replace(lease, admitted=admitted))
    assert_promises_fit(leases, policy)
    for position, lease in enumerate(leases):
        try:
            given_ = change(lease, growth, policy=policy, devices=DEVICES, leases=leases, used={}, attached=True)
        except InvalidValue as error:
            assert error.code == "conflict"
        else:
            leases[position] = replace(lease, grant=given_)
        assert_promises_fit(leases, policy)


class Pool(RuleBasedStateMachine):
    """Tenants come, change, are admitted and go, under one policy."""

    def __init__(self):
        super().__init__()
        self.leases: dict[str, Lease] = {}
        self.used: dict[tuple[str, str], int] = {}
        self.count = 0

    @initialize(policy=policies())
    def begin(self, policy):
        self.policy = policy

    @rule(request=st.one_of(requests, garbage_requests))
    def create(self, request):
        given_ = grant(request, policy=self.policy, devices=DEVICES, leases=self.leases.values())
        self.count += 1
        id = str(self.count)
        self.leases[id] = Lease(id=id, grant=given_, name=id, uid=1, owner="a", created=0.0, request=request)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def admit(self, data):
        lease = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        if admissible(lease, policy=self.policy, devices=DEVICES, leases=self.leases.values()) is None:
            self.leases[lease.id] = replace(lease, admitted=True)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def use(self, data):
        lease = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        if lease.admitted:
            for part in lease.grant.parts:
                self.used[lease.id, part.device] = data.draw(st.integers(0, part.memory))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), request=st.one_of(changes, garbage_requests))
    def change(self, data, request):
        lease = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        before = dict(self.leases)
        used = {part.device: self.used.get((lease.id, part.device), 0) for part in lease.grant.parts}
        try:
            given_ = change(
                lease,
                request,
                policy=self.policy,
                devices=DEVICES,
                leases=self.leases.values(),
                used=used,
                attached=lease.admitted,
            )
        except InvalidValue as error:
            assert error.code in ("invalid", "conflict")
            assert error.field and error.field in str(error)
        else:
            if lease.admitted:
                assert {part.device for part in given_.parts} == {part.device for part in lease.grant.parts}
            assert all(used.get(part.device, 0) <= part.memory for part in given_.parts)
            self.leases[lease.id] = replace(lease, grant=given_)
        del before[lease.id]
        assert before == {id: other for id, other in self.leases.items() if id != lease.id}

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data):
        del self.leases[data.draw(st.sampled_from(sorted(self.leases)))]

    @invariant()
    def every_lease_is_sound(self):
        for lease in self.leases.values():
            assert_sound(lease.grant.parts, self.policy)

    @precondition(lambda self: self.leases)
    @invariant()
    def promises_fit_the_devices(self):
        assert_promises_fit(self.leases.values(), self.policy)


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
