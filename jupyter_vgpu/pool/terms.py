"""What a request means: its values read, its class found, and the parts that come of both on given devices.

Called by `admission` alone. A problem goes to `report`, which raises it or, where nothing may fail, notes it with what is done instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .model import COMPUTE_MAXIMUM, NO_CAP, PRIORITIES, Device, InvalidValue, LeasePart, LeaseRequest, Priority
from .policy import Policy, TenantClass
from .policy_fields import MEMORY_MINIMUM
from .units import Amount, format_exact, format_fraction, format_size, parse_amount, parse_fraction

Report = Callable[[InvalidValue, str], None]

_CLASS_INSTEAD = "the class's value is used"


@dataclass(frozen=True)
class Asked:
    """A request's values, read. None: not asked, or unreadable and reported.

    `memory_from` is the field that gave the memory and its value as it came. `compute_cap` of 0.0 takes a cap away.
    """

    memory: Amount | None = None
    memory_from: tuple[str, object] = ("memory", None)
    compute: float | None = None
    compute_from: tuple[str, object] = ("compute", None)
    compute_cap: float | None = None
    priority: Priority | None = None

    @property
    def resizes(self) -> bool:
        return self.memory is not None or self.compute is not None or self.compute_cap is not None


def read(request: LeaseRequest, report: Report) -> Asked:
    """`share` stands for both memory and compute; either of these given beside it counts instead."""

    def parsed(field: str, parse: Callable[..., object]) -> object:
        value = getattr(request, field)
        if value is None:
            return None
        try:
            return parse(value, field=field)
        except InvalidValue as problem:
            report(problem, _CLASS_INSTEAD)
            return None

    asked = Asked(compute_cap=parsed("compute_cap", _parse_cap), priority=parsed("priority", _parse_priority))
    share, memory, compute = parsed("share", parse_fraction), parsed("memory", parse_amount), parsed("compute", parse_fraction)
    if share is not None:
        source = ("share", request.share)
        asked = replace(asked, memory=Amount(fraction=share), memory_from=source, compute=share, compute_from=source)
    if memory is not None:
        asked = replace(asked, memory=memory, memory_from=("memory", request.memory))
    if compute is not None:
        asked = replace(asked, compute=compute, compute_from=("compute", request.compute))
    return asked


def _parse_cap(value: object, *, field: str) -> float:
    if value == NO_CAP:
        return 0.0
    try:
        return parse_fraction(value, field=field)
    except InvalidValue as problem:
        raise InvalidValue(field=field, value=value, allowed=f"{problem.allowed}, or {NO_CAP}") from None


def _parse_priority(value: object, *, field: str) -> Priority:
    if value in PRIORITIES:
        return value
    raise InvalidValue(field=field, value=value, allowed="one of " + ", ".join(PRIORITIES))


def template(name: object, policy: Policy, report: Report) -> tuple[str | None, TenantClass]:
    """The class of that name, and its name; None is the default class, whose name is None in a policy that names none."""
    if name is None:
        return policy.default_class, policy.tenant_class(None)
    if isinstance(name, str) and name in policy.classes:
        return name, policy.classes[name]
    allowed = "one of " + ", ".join(sorted(policy.classes)) if policy.classes else "none: the policy has no classes"
    close = difflib.get_close_matches(name[:100], policy.classes, n=1) if isinstance(name, str) else []
    if close:
        allowed += f" (did you mean {close[0]}?)"
    report(InvalidValue(field="class", value=name, allowed=allowed), "the default class is used")
    return policy.default_class, policy.tenant_class(None)


def class_part(device: Device, tenant_class: TenantClass, policy: Policy) -> LeasePart:
    """What the class gives of `device`. The bounds and the device's size cut it without a word: nobody asked for more."""
    total, bounds = policy.pool_memory(device), policy.bounds
    memory = min(tenant_class.memory.of(total), memory_bound(device, policy))
    caps = [cap for cap in (tenant_class.compute_cap, bounds.compute_cap) if cap is not None]
    return LeasePart(
        device=device.uuid,
        memory=memory,
        memory_guarantee=min(tenant_class.memory_guarantee.of(total), memory),
        compute=min(tenant_class.compute, bounds.compute or COMPUTE_MAXIMUM),
        compute_cap=min(caps, default=None),
    )


def moved_part(old: LeasePart, *, to: Device, old_device: Device | None, tenant_class: TenantClass, policy: Policy) -> LeasePart:
    """What a lease takes along when it moves: a limit of its own as far as it fits; the class's limit becomes the class's over there."""
    part = class_part(to, tenant_class, policy)
    if old_device is None or old.memory != class_part(old_device, tenant_class, policy).memory:
        memory = min(old.memory, memory_bound(to, policy))
        part = replace(part, memory=memory, memory_guarantee=min(part.memory_guarantee, memory))
    return replace(part, compute=old.compute, compute_cap=old.compute_cap)


def memory_bound(device: Device, policy: Policy) -> int:
    """Bytes of `device` that one tenant may hold at most."""
    total = policy.pool_memory(device)
    return total if policy.bounds.memory is None else min(total, policy.bounds.memory.of(total))


def apply(
    asked: Asked,
    *,
    devices: Sequence[Device],
    base: Mapping[str, LeasePart],
    tenant_class: TenantClass,
    policy: Policy,
    context_memory: int,
    report: Report,
) -> tuple[LeasePart, ...]:
    """`base` (by uuid) with what was asked for on top of it, within bounds and devices."""
    bounds = policy.bounds
    compute = _within(asked.compute, asked.compute_from, bounds.compute, report)
    cap = asked.compute_cap
    if cap == 0.0 and bounds.compute_cap is not None:
        allowed = f"at most {bounds.compute_cap:g} by the policy's bounds"
        report(InvalidValue(field="compute_cap", value=NO_CAP, allowed=allowed), f"{format_fraction(bounds.compute_cap)} is used")
        cap = bounds.compute_cap
    cap = _within(cap, ("compute_cap", cap), bounds.compute_cap, report)
    memory = _memory(asked, devices, policy, context_memory, report)
    parts = []
    for device in devices:
        part = base[device.uuid]
        if device.uuid in memory:
            # From the class again, so that a limit which was small for a while gets its guarantee back.
            guarantee = tenant_class.memory_guarantee.of(policy.pool_memory(device))
            part = replace(part, memory=memory[device.uuid], memory_guarantee=min(guarantee, memory[device.uuid]))
        if compute is not None:
            part = replace(part, compute=compute)
        if cap is not None:
            part = replace(part, compute_cap=cap or None)
        parts.append(part)
    return tuple(parts)


def _within(value: float | None, source: tuple[str, object], bound: float | None, report: Report) -> float | None:
    if value is None or bound is None or value <= bound:
        return value
    field, given = source
    report(InvalidValue(field=field, value=given, allowed=f"at most {bound:g} by the policy's bounds"), f"{format_fraction(bound)} is used")
    return bound


def _memory(asked: Asked, devices: Sequence[Device], policy: Policy, context_memory: int, report: Report) -> dict[str, int]:
    """The limits asked for, in bytes by uuid; empty when none were or when they are hopeless.

    More than the largest of the devices has is reported; on a smaller one beside it the same size is the whole of that one.
    """
    if asked.memory is None or not devices:
        return {}
    field, given = asked.memory_from
    limits = {device.uuid: memory_bound(device, policy) for device in devices}
    wanted = {device.uuid: asked.memory.of(policy.pool_memory(device)) for device in devices}
    least, most = max(MEMORY_MINIMUM, context_memory), max(limits.values())
    if min(wanted.values()) < least:
        why = "what a CUDA context alone takes" if context_memory > MEMORY_MINIMUM else "the smallest limit there is"
        report(InvalidValue(field=field, value=given, allowed=f"at least {format_exact(least)}, {why}"), _CLASS_INSTEAD)
        return {}
    if all(wanted[uuid] > limits[uuid] for uuid in wanted):
        is_policy = most < max(policy.pool_memory(device) for device in devices)
        whose = "the most that the policy's bounds allow" if is_policy else "what the pool has of the device"
        report(InvalidValue(field=field, value=given, allowed=f"at most {format_exact(most)}, {whose}"), f"{format_size(most)} is used")
    return {uuid: min(wanted[uuid], limits[uuid]) for uuid in wanted}
