"""Who gets what: what the policy makes of a request, of a change, and whether a lease may run now.

Pure functions over the pool's values; the arbiter calls them and keeps the state. `leases` are all that exist (the lease in question
may be among them), `devices` all that the machine has, in pool order. Memory in bytes, compute in fractions of one device.

`context_memory` is what a CUDA context alone takes, as far as the arbiter has measured it (0: not yet): a limit below it is hopeless,
because the first allocation would fail, so it is refused when it is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from . import terms
from .model import Device, Grant, InvalidValue, Lease, LeasePart, LeaseRequest
from .placement import device_names, place, requested, unusable, visible
from .policy import Policy, TenantClass
from .units import format_exact, format_size


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
    at the first of these instead; but what a class gives, and which devices another arbiter manages, is no fault of the request.
    """
    messages: list[str] = []

    def report(problem: InvalidValue, instead: str) -> None:
        if strict:
            raise problem
        messages.append(f"{problem}; {instead}")

    name, tenant_class = terms.template(request.lease_class, policy, report)
    asked = terms.read(request, report)
    seen, is_settled = _seen(request, tenant_class, devices, report)
    candidates = _usable(seen, policy)
    messages += [reason for device in seen if (reason := unusable(device, policy)) is not None]
    chosen = candidates
    if not is_settled:
        amount = asked.memory or tenant_class.memory
        memory = {device.uuid: amount.of(policy.pool_memory(device)) for device in candidates}
        chosen = place(candidates, count=tenant_class.devices, memory=memory, policy=policy, leases=leases)
    base = {device.uuid: terms.class_part(device, tenant_class, policy) for device in chosen}
    parts = terms.apply(
        asked, devices=chosen, base=base, tenant_class=tenant_class, policy=policy, context_memory=context_memory, report=report
    )
    if any(part.memory < context_memory for part in parts):
        given, needed = format_size(min(part.memory for part in parts)), format_size(context_memory)
        messages.append(f"memory: the policy gives {given}, and a CUDA context alone takes {needed}: nothing will fit")
    return Grant(
        parts=parts,
        priority=asked.priority or tenant_class.priority,
        lease_class=name,
        message="; ".join(messages) or None,
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
    `attached`: its devices are settled, because a process of it has or had a context. Code ``conflict``: a limit below what is in use,
    other devices once they are settled, or (for an admitted lease) growth that does not fit beside the others.
    """
    if request.lease_class is None:
        name, tenant_class = lease.grant.lease_class, policy.tenant_class(lease.grant.lease_class)
    else:
        name, tenant_class = terms.template(request.lease_class, policy, _raise)
    asked = terms.read(request, _raise)
    others = [other for other in leases if other.id != lease.id]
    by_uuid = {device.uuid: device for device in devices}
    chosen = _changed_devices(lease, request, tenant_class, policy=policy, devices=devices, others=others, attached=attached)
    if asked.resizes and not chosen:
        field, value = asked.memory_from if asked.memory is not None else asked.compute_from
        message = f"{field}: the lease holds no device, so there is nothing to change"
        raise InvalidValue(field=field, value=value, allowed=None, message=message, code="conflict")

    held = {part.device: part for part in lease.grant.parts}
    base = {}
    for device in chosen:
        if request.lease_class is not None or not held:
            base[device.uuid] = terms.class_part(device, tenant_class, policy)
        elif device.uuid in held:
            base[device.uuid] = held[device.uuid]
        else:
            old = lease.grant.parts[0]
            base[device.uuid] = terms.moved_part(
                old, to=device, old_device=by_uuid.get(old.device), tenant_class=tenant_class, policy=policy
            )
    parts = terms.apply(
        asked, devices=chosen, base=base, tenant_class=tenant_class, policy=policy, context_memory=context_memory, report=_raise
    )
    cause = asked.memory_from if asked.memory is not None else ("class", request.lease_class)
    if request.lease_class is None and asked.memory is None:
        cause = ("device", request.device)
    for part in parts:
        before = held.get(part.device)
        in_use = used.get(part.device, 0)
        if before is not None and part.memory < min(before.memory, in_use):
            allowed = f"at least {format_exact(in_use)}, which is in use on device {by_uuid[part.device].index}"
            raise InvalidValue(field=cause[0], value=cause[1], allowed=allowed, code="conflict")
    if lease.admitted:
        _check_growth(parts, held, cause, policy=policy, by_uuid=by_uuid, others=others)
    return Grant(
        parts=parts,
        priority=asked.priority or (lease.grant.priority if request.lease_class is None else tenant_class.priority),
        lease_class=name,
    )


def admissible(lease: Lease, *, policy: Policy, devices: Sequence[Device], leases: Iterable[Lease]) -> str | None:
    """None when `lease` may hold a context now, else the reason to wait, for a person. Called by the arbiter for the queue.

    Guarantees of the admitted leases never exceed a device; their limits stay within the policy's `oversubscription` of it.
    """
    by_uuid = {device.uuid: device for device in devices}
    sums = _admitted_sums(other for other in leases if other.id != lease.id)
    for part in lease.grant.parts:
        device = by_uuid.get(part.device)
        if device is None:
            return f"device {part.device} is gone"
        if device.managed_by is not None:
            return unusable(device, policy)
        reason = _no_room(part, device, policy=policy, sums=sums)
        if reason is not None:
            return reason
    return None


def _raise(problem: InvalidValue, _instead: str) -> None:
    raise problem


def _admitted_sums(leases: Iterable[Lease]) -> dict[str, tuple[int, int]]:
    """What the admitted leases hold: (guarantees, limits) in bytes by device uuid."""
    sums: dict[str, tuple[int, int]] = {}
    for lease in leases:
        if lease.admitted:
            for part in lease.grant.parts:
                guaranteed, limits = sums.get(part.device, (0, 0))
                sums[part.device] = guaranteed + part.memory_guarantee, limits + part.memory
    return sums


def _no_room(part: LeasePart, device: Device, *, policy: Policy, sums: Mapping[str, tuple[int, int]]) -> str | None:
    """Why `part` does not fit beside what the others hold of its device; None when it does."""
    total = policy.pool_memory(device)
    guaranteed, limits = sums.get(part.device, (0, 0))
    if part.memory_guarantee and guaranteed + part.memory_guarantee > total:
        left, needed = format_size(max(0, total - guaranteed)), format_size(part.memory_guarantee)
        return f"{needed} have to be guaranteed, and device {device.index} has {left} left to guarantee"
    if policy.oversubscription is not None and limits + part.memory > int(total * policy.oversubscription):
        left, needed = format_size(max(0, int(total * policy.oversubscription) - limits)), format_size(part.memory)
        return f"{needed} are needed, and device {device.index} has {left} left to lend (oversubscription {policy.oversubscription:g})"
    return None


def _check_growth(
    parts: Iterable[LeasePart],
    held: Mapping[str, LeasePart],
    cause: tuple[str, object],
    *,
    policy: Policy,
    by_uuid: Mapping[str, Device],
    others: Iterable[Lease],
) -> None:
    """Growth of an admitted lease has to fit. A shrink is always welcome, even where a new policy left too little for all."""
    sums = _admitted_sums(others)
    for part in parts:
        before = held.get(part.device)
        if before is not None and part.memory <= before.memory and part.memory_guarantee <= before.memory_guarantee:
            continue
        reason = _no_room(part, by_uuid[part.device], policy=policy, sums=sums)
        if reason is not None:
            message = f"{cause[0]}: {cause[1]!r} does not fit now: {reason}"
            raise InvalidValue(field=cause[0], value=cause[1], allowed=reason, message=message, code="conflict")


def _usable(devices: Iterable[Device], policy: Policy) -> tuple[Device, ...]:
    return tuple(device for device in devices if unusable(device, policy) is None)


def _seen(
    request: LeaseRequest, tenant_class: TenantClass, devices: Sequence[Device], report: terms.Report
) -> tuple[tuple[Device, ...], bool]:
    """The devices that a new lease may get, and whether it gets exactly these (it named them) or the policy chooses among them."""
    if request.device is not None:
        try:
            return _requested(request.device, tenant_class, devices), True
        except InvalidValue as problem:
            report(problem, "the policy chooses")
    seen, problem = visible(devices, request.visible_devices)
    if problem is not None:
        names = ", ".join(str(device.index) for device in seen)
        report(problem, f"as with CUDA, {f'only {names} can be seen' if seen else 'no device can be seen'}")
    return seen, False


def _requested(value: str, tenant_class: TenantClass, devices: Sequence[Device]) -> tuple[Device, ...]:
    chosen = requested(value, devices)
    if tenant_class.devices != "all" and len(chosen) > tenant_class.devices:
        raise InvalidValue(field="device", value=value, allowed=f"{tenant_class.devices} at most, by the class, of {device_names(devices)}")
    return chosen


def _changed_devices(
    lease: Lease,
    request: LeaseRequest,
    tenant_class: TenantClass,
    *,
    policy: Policy,
    devices: Sequence[Device],
    others: Iterable[Lease],
    attached: bool,
) -> tuple[Device, ...]:
    """The devices of the lease after the change: those it has, those asked for, or those that another class gives."""
    by_uuid = {device.uuid: device for device in devices}
    current = tuple(by_uuid[part.device] for part in lease.grant.parts if part.device in by_uuid)
    cause = ("device", request.device) if request.device is not None else ("class", request.lease_class)
    chosen = current
    if request.device is not None:
        chosen = _requested(request.device, tenant_class, devices)
        for device in chosen:
            reason = unusable(device, policy)
            if reason is not None and device not in current:
                raise InvalidValue(field="device", value=request.device, allowed=None, message=f"device: {reason}", code="conflict")
    elif request.lease_class is not None:
        candidates = _usable(visible(devices, lease.request.visible_devices)[0], policy)
        count = len(candidates) if tenant_class.devices == "all" else min(tenant_class.devices, len(candidates))
        if count != len(lease.grant.parts):
            memory = {device.uuid: tenant_class.memory.of(policy.pool_memory(device)) for device in candidates}
            chosen = place(candidates, count=count, memory=memory, policy=policy, leases=others)
    if chosen == current and len(current) < len(lease.grant.parts):
        gone = next(part.device for part in lease.grant.parts if part.device not in by_uuid)
        message = f"device {gone} of this lease is gone: before its first context the lease can move to another, later only wait"
        raise InvalidValue(field="device", value=gone, allowed=device_names(devices), message=message, code="conflict")
    if attached and chosen != current:
        names = device_names(current)
        message = f"{cause[0]}: {cause[1]!r} means other devices, and they are settled from the first CUDA context on; here: {names}"
        raise InvalidValue(field=cause[0], value=cause[1], allowed=names, message=message, code="conflict")
    return chosen
