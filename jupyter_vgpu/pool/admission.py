"""Who gets what: what the policy makes of a request, of a change, and whether a lease may run now.

Pure functions over the pool's values; the arbiter calls them and keeps the state. `leases` are all that exist (the lease in question
may be among them), `devices` all that the machine has, in pool order. Memory in bytes, compute in fractions of one device.

`context_memory` is what a CUDA context alone takes, as far as the arbiter has measured it (0: not yet): a limit below it is hopeless,
because the first allocation would fail, so it is refused when it is set.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .model import COMPUTE_MAXIMUM, NO_CAP, PRIORITIES, Device, Grant, InvalidValue, Lease, LeasePart, LeaseRequest
from .placement import device_names, place, requested, unusable, visible
from .policy import MEMORY_MINIMUM, Policy, TenantClass
from .units import Amount, format_exact, format_fraction, format_size, parse_amount, parse_fraction

Report = Callable[[InvalidValue, str], None]
"""Told what is wrong and, for a person, what is done instead; a strict one raises."""


@dataclass(frozen=True)
class _Asked:
    """A request's figures, read. None: not asked, or not readable and reported. `compute_cap` of 0.0: take the cap away."""

    memory: Amount | None = None
    memory_as_given: object = None
    memory_field: str = "memory"
    compute: float | None = None
    compute_field: str = "compute"
    compute_cap: float | None = None
    priority: str | None = None


def grant(
    request: LeaseRequest,
    *,
    policy: Policy,
    devices: Sequence[Device],
    leases: Iterable[Lease],
    strict: bool = False,
    context_memory: int = 0,
) -> Grant:
    """What a new tenant gets. Called by the arbiter when a lease is made.

    Never refuses: what is excessive is clamped, what is wrong or hopeless is left at the class's value, an unknown class is the default
    class; the grant's `message` says so. No usable device gives a grant without parts and the reason. `strict` raises `InvalidValue`
    at the first of these instead (but a device that another arbiter manages is no fault of the request).
    """
    messages: list[str] = []

    def report(problem: InvalidValue, instead: str) -> None:
        if strict:
            raise problem
        messages.append(f"{problem}; {instead}")

    name, template = _template(request.lease_class, policy, report)
    asked = _read(request, report)
    candidates, reason = _candidates(request, policy, devices, report)
    if reason is not None:
        messages.append(reason)
    if request.device is None:
        wanted = asked.memory or template.memory
        memory = {device.uuid: wanted.of(policy.pool_memory(device)) for device in candidates}
        candidates = place(candidates, count=template.devices, memory=memory, policy=policy, leases=leases)
    base = {device.uuid: _class_part(device, template, policy) for device in candidates}
    for device in candidates:
        if base[device.uuid].memory < context_memory:
            given = format_size(base[device.uuid].memory)
            messages.append(f"memory: the class gives {given} of device {device.index}, and a CUDA context alone takes {format_size(context_memory)}")
    parts = _parts(candidates, base, asked, template, policy, context_memory, report)
    return Grant(
        parts=parts,
        priority=asked.priority or template.priority,
        lease_class=name,
        message="; ".join(dict.fromkeys(messages)) or None,
    )


def change(
    lease: Lease,
    request: LeaseRequest,
    *,
    policy: Policy,
    devices: Sequence[Device],
    leases: Iterable[Lease],
    used: Mapping[str, int],
    attached: bool,
    context_memory: int = 0,
) -> Grant:
    """What `lease` becomes by a change that somebody asked for. Called by the arbiter for every PATCH of a lease.

    All or nothing: returns the new grant, or raises `InvalidValue` and nothing has changed. Only what is asked for is changed; a class
    sets everything, and the other fields of the same request come on top of it. `used`: bytes the tenant holds by device uuid;
    `attached`: it has or had a context, so its devices are settled. Code ``conflict``: a limit below what is in use, other devices
    after the first context, or (for an admitted lease) growth that does not fit beside the others.
    """

    def report(problem: InvalidValue, _instead: str) -> None:
        raise problem

    name, template = lease.grant.lease_class, policy.tenant_class(lease.grant.lease_class)
    if request.lease_class is not None:
        name, template = _template(request.lease_class, policy, report)
    asked = _read(request, report)
    by_uuid = {device.uuid: device for device in devices}
    leases = [other for other in leases if other.id != lease.id]
    chosen = _changed_devices(lease, request, template, policy, devices, leases, attached)

    held = {part.device: part for part in lease.grant.parts}
    if request.lease_class is None:
        base = {device.uuid: held.get(device.uuid) or _moved_part(device, lease, template, policy) for device in chosen}
    else:
        base = {device.uuid: _class_part(device, template, policy) for device in chosen}
    gone = [part for part in lease.grant.parts if part.device not in by_uuid] if request.device is None else []
    if (asked.memory or asked.compute or asked.compute_cap is not None) and (gone or not chosen):
        raise InvalidValue(
            field=asked.memory_field if asked.memory else "compute",
            value=request.memory if asked.memory else request.compute,
            allowed=None,
            message="the lease holds no device of this pool, so there is nothing to change" if not chosen else f"device {gone[0].device} is gone",
            code="conflict",
        )
    parts = _parts(chosen, base, asked, template, policy, context_memory, report)
    for part in parts:
        in_use = used.get(part.device, 0)
        if part.memory < in_use and part.memory < getattr(held.get(part.device), "memory", 0):
            raise InvalidValue(
                field="class" if asked.memory is None else asked.memory_field,
                value=request.lease_class if asked.memory is None else asked.memory_as_given,
                allowed=f"at least {format_exact(in_use)}, which is in use on device {by_uuid[part.device].index}",
                code="conflict",
            )
    changed = Grant(
        parts=(*parts, *gone),
        priority=asked.priority or (template.priority if request.lease_class is not None else lease.grant.priority),
        lease_class=name,
    )
    if lease.admitted:
        _check_room(changed, lease, request, asked, policy, by_uuid, leases)
    return changed


def admissible(lease: Lease, *, policy: Policy, devices: Sequence[Device], leases: Iterable[Lease]) -> str | None:
    """None when `lease` may hold a context now, else the reason to wait, for a person. Called by the arbiter for the queue.

    Guarantees of the admitted leases never exceed a device; their limits stay within the policy's `oversubscription` of it.
    """
    by_uuid = {device.uuid: device for device in devices}
    others = [other for other in leases if other.id != lease.id]
    guaranteed, promised = _admitted_sums(others)
    for part in lease.grant.parts:
        device = by_uuid.get(part.device)
        if device is None:
            return f"device {part.device} is gone"
        if device.managed_by is not None:
            return unusable(device, policy)
        reason = _no_room(part, device, policy, guaranteed.get(part.device, 0), promised.get(part.device, 0))
        if reason is not None:
            return reason
    return None


def _admitted_sums(leases: Iterable[Lease]) -> tuple[dict[str, int], dict[str, int]]:
    """Guarantees and limits of the admitted leases, in bytes by device uuid."""
    guaranteed: dict[str, int] = {}
    promised: dict[str, int] = {}
    for lease in leases:
        if lease.admitted:
            for part in lease.grant.parts:
                guaranteed[part.device] = guaranteed.get(part.device, 0) + part.memory_guarantee
                promised[part.device] = promised.get(part.device, 0) + part.memory
    return guaranteed, promised


def _no_room(part: LeasePart, device: Device, policy: Policy, guaranteed: int, promised: int) -> str | None:
    """Why `part` does not fit beside what is guaranteed and promised to others on its device; None when it does."""
    total = policy.pool_memory(device)
    if part.memory_guarantee and guaranteed + part.memory_guarantee > total:
        return (
            f"device {device.index} has {format_size(max(0, total - guaranteed))} left to guarantee, "
            f"{format_size(part.memory_guarantee)} are needed"
        )
    if policy.oversubscription is not None and promised + part.memory > int(total * policy.oversubscription):
        left = max(0, int(total * policy.oversubscription) - promised)
        return (
            f"device {device.index} has {format_size(left)} left to lend (oversubscription {policy.oversubscription:g}), "
            f"{format_size(part.memory)} are needed"
        )
    return None


def _check_room(
    changed: Grant, lease: Lease, request: LeaseRequest, asked: _Asked, policy: Policy, by_uuid: Mapping[str, Device], others: Iterable[Lease]
) -> None:
    """Growth of an admitted lease has to fit; a shrink is always welcome, even where a new policy left too little for all."""
    guaranteed, promised = _admitted_sums(others)
    held = {part.device: part for part in lease.grant.parts}
    for part in changed.parts:
        before = held.get(part.device)
        if part.device not in by_uuid:
            continue
        if before is not None and part.memory <= before.memory and part.memory_guarantee <= before.memory_guarantee:
            continue
        reason = _no_room(part, by_uuid[part.device], policy, guaranteed.get(part.device, 0), promised.get(part.device, 0))
        if reason is not None:
            field, value = (asked.memory_field, asked.memory_as_given) if asked.memory is not None else ("class", request.lease_class)
            raise InvalidValue(field=field, value=value, allowed=reason, message=f"{field}: {value!r} does not fit now: {reason}", code="conflict")


def _template(name: object, policy: Policy, report: Report) -> tuple[str | None, TenantClass]:
    if name is None or (isinstance(name, str) and name in policy.classes):
        name = policy.default_class if name is None else name
        return name, policy.tenant_class(name)
    allowed = "one of " + ", ".join(sorted(policy.classes)) if policy.classes else "none: the policy has no classes"
    close = difflib.get_close_matches(name, policy.classes, n=1) if isinstance(name, str) else []
    if close:
        allowed += f" (did you mean {close[0]}?)"
    report(InvalidValue(field="class", value=name, allowed=allowed), "the default class is used")
    return policy.default_class, policy.tenant_class(None)


def _read(request: LeaseRequest, report: Report) -> _Asked:
    """The request's figures. `share` stands for both memory and compute; either one given beside it counts instead."""
    asked = _Asked()

    def read(field: str, parse: Callable[..., object], **others: object) -> None:
        nonlocal asked
        value = getattr(request, field)
        if value is not None:
            try:
                parsed = parse(value, field=field)
            except InvalidValue as problem:
                report(problem, "the class's value is used")
            else:
                target = others.pop("target", field)
                asked = replace(asked, **{target: parsed}, **others)

    read("share", lambda value, field: Amount(fraction=parse_fraction(value, field=field)),
         target="memory", memory_as_given=request.share, memory_field="share")  # fmt: skip
    if asked.memory is not None:
        asked = replace(asked, compute=asked.memory.fraction, compute_field="share")
    read("memory", parse_amount, memory_as_given=request.memory, memory_field="memory")
    read("compute", parse_fraction, compute_field="compute")
    read("compute_cap", _parse_cap)
    read("priority", _parse_priority)
    return asked


def _parse_cap(value: object, *, field: str) -> float:
    if value == NO_CAP:
        return 0.0
    try:
        return parse_fraction(value, field=field)
    except InvalidValue as problem:
        raise InvalidValue(field=field, value=value, allowed=f"{problem.allowed}, or {NO_CAP}") from None


def _parse_priority(value: object, *, field: str) -> str:
    if value in PRIORITIES:
        return value
    raise InvalidValue(field=field, value=value, allowed="one of " + ", ".join(PRIORITIES))


def _candidates(
    request: LeaseRequest, policy: Policy, devices: Sequence[Device], report: Report
) -> tuple[tuple[Device, ...], str | None]:
    """The devices that a new lease may get, and why some that it would see otherwise are not among them."""
    seen, problem = visible(devices, request.visible_devices)
    if problem is not None:
        report(problem, f"as with CUDA, it gets {len(seen) or 'no'} device{'' if len(seen) == 1 else 's'}")
    if request.device is not None:
        try:
            seen = requested(request.device, devices)
        except InvalidValue as wrong:
            report(wrong, "the policy chooses")
            request = replace(request, device=None)
    reasons = [reason for device in seen if (reason := unusable(device, policy)) is not None]
    return tuple(device for device in seen if unusable(device, policy) is None), "; ".join(reasons) or None


def _changed_devices(
    lease: Lease,
    request: LeaseRequest,
    template: TenantClass,
    policy: Policy,
    devices: Sequence[Device],
    others: Iterable[Lease],
    attached: bool,
) -> tuple[Device, ...]:
    """The devices of the lease after the change: the same, those asked for, or those that a new class gives."""
    by_uuid = {device.uuid: device for device in devices}
    current = tuple(by_uuid[part.device] for part in lease.grant.parts if part.device in by_uuid)
    if request.device is not None:
        chosen = requested(request.device, devices)
        for device in chosen:
            reason = unusable(device, policy)
            if reason is not None:
                raise InvalidValue(field="device", value=request.device, allowed=None, message=f"device: {reason}", code="conflict")
        if template.devices != "all" and len(chosen) > template.devices:
            raise InvalidValue(field="device", value=request.device, allowed=f"at most {template.devices} of {device_names(devices)}")
        field, value = "device", request.device
    elif request.lease_class is not None:
        seen = tuple(device for device in visible(devices, lease.request.visible_devices)[0] if unusable(device, policy) is None)
        count = len(seen) if template.devices == "all" else min(template.devices, len(seen))
        if count == len(current):
            return current
        memory = {device.uuid: template.memory.of(policy.pool_memory(device)) for device in seen}
        chosen = place(seen, count=count, memory=memory, policy=policy, leases=others)
        field, value = "class", request.lease_class
    else:
        return current
    if attached and chosen != current:
        held = device_names(current)
        message = f"{field}: {value!r} means other devices, and those are settled once the tenant has a CUDA context; it has {held}"
        raise InvalidValue(field=field, value=value, allowed=held, message=message, code="conflict")
    return chosen


def _class_part(device: Device, template: TenantClass, policy: Policy) -> LeasePart:
    """What the class gives of `device`. The bounds and the device's size cut it without a word: nobody asked for more."""
    total, bounds = policy.pool_memory(device), policy.bounds
    memory = min(template.memory.of(total), _memory_bound(total, policy))
    return LeasePart(
        device=device.uuid,
        memory=memory,
        memory_guarantee=min(template.memory_guarantee.of(total), memory),
        compute=min(template.compute, bounds.compute or COMPUTE_MAXIMUM),
        compute_cap=_least(template.compute_cap, bounds.compute_cap),
    )


def _moved_part(device: Device, lease: Lease, template: TenantClass, policy: Policy) -> LeasePart:
    """What a lease that moves to `device` holds there: the figures it had, so far as they fit; without any, its class's."""
    part = _class_part(device, template, policy)
    if not lease.grant.parts:
        return part
    old = lease.grant.parts[0]
    memory = part.memory if lease.request.memory is None and lease.request.share is None else min(old.memory, _memory_bound(policy.pool_memory(device), policy))
    return replace(old, device=device.uuid, memory=memory, memory_guarantee=min(part.memory_guarantee, memory))


def _memory_bound(total: int, policy: Policy) -> int:
    return total if policy.bounds.memory is None else min(total, policy.bounds.memory.of(total))


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _parts(
    devices: Sequence[Device],
    base: Mapping[str, LeasePart],
    asked: _Asked,
    template: TenantClass,
    policy: Policy,
    context_memory: int,
    report: Report,
) -> tuple[LeasePart, ...]:
    """`base` with what was asked for on top, within bounds and devices."""
    compute = _within(asked.compute, asked.compute_field, policy.bounds.compute, report)
    cap_bound = policy.bounds.compute_cap
    cap = asked.compute_cap
    if cap == 0.0 and cap_bound is not None:
        report(InvalidValue(field="compute_cap", value=NO_CAP, allowed=f"at most {cap_bound:g} by the policy's bounds"), f"{cap_bound:g} is used")
        cap = cap_bound
    elif cap:
        cap = _within(cap, "compute_cap", cap_bound, report)
    memory = _memory(devices, base, asked, policy, context_memory, report)
    parts = []
    for device in devices:
        part = base[device.uuid]
        if device.uuid in memory:
            # From the class again, so that a limit which was small for a while gets its guarantee back.
            guarantee = min(template.memory_guarantee.of(policy.pool_memory(device)), memory[device.uuid])
            part = replace(part, memory=memory[device.uuid], memory_guarantee=guarantee)
        if compute is not None:
            part = replace(part, compute=compute)
        if cap is not None:
            part = replace(part, compute_cap=cap or None)
        parts.append(part)
    return tuple(parts)


def _within(value: float | None, field: str, bound: float | None, report: Report) -> float | None:
    if value is None or bound is None or value <= bound:
        return value
    report(InvalidValue(field=field, value=value, allowed=f"at most {bound:g} by the policy's bounds"), f"{format_fraction(bound)} is used")
    return bound


def _memory(
    devices: Sequence[Device], base: Mapping[str, LeasePart], asked: _Asked, policy: Policy, context_memory: int, report: Report
) -> dict[str, int]:
    """The limits asked for, by uuid; empty when none were or when they are hopeless.

    A size above the largest of the lease's devices is reported; on a smaller one beside it, it is the whole of that one.
    """
    if asked.memory is None or not devices:
        return {}
    bounds = {device.uuid: _memory_bound(policy.pool_memory(device), policy) for device in devices}
    wanted = {device.uuid: asked.memory.of(policy.pool_memory(device)) for device in devices}
    least = max(MEMORY_MINIMUM, context_memory)
    most = max(bounds.values())
    if min(wanted.values()) < least:
        why = "what a CUDA context alone takes" if context_memory >= MEMORY_MINIMUM else "the smallest limit; the whole device is 1.0 or 100%"
        problem = InvalidValue(field=asked.memory_field, value=asked.memory_as_given, allowed=f"at least {format_exact(least)}, {why}")
        report(problem, "the class's value is used")
        return {}
    if all(wanted[uuid] > bounds[uuid] for uuid in wanted):
        by_policy = policy.bounds.memory is not None and most < max(policy.pool_memory(device) for device in devices)
        why = "by the policy's bounds" if by_policy else f"the pool's part of device {', '.join(str(device.index) for device in devices)}"
        problem = InvalidValue(field=asked.memory_field, value=asked.memory_as_given, allowed=f"at most {format_exact(most)}, {why}")
        report(problem, f"{format_size(most)} is used")
    return {uuid: min(wanted[uuid], bounds[uuid]) for uuid in wanted}
