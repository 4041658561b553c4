"""Which devices a lease gets. Called by `admission` when a lease is made or moved; pure, so that later placements can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .model import Device, InvalidValue, Lease
from .policy import Policy

_LEADING_NUMBER = re.compile(r"[0-9]+", re.ASCII)


def memory_promised(leases: Iterable[Lease]) -> dict[str, int]:
    """Sum of the leases' limits in bytes by device uuid."""
    promised: dict[str, int] = {}
    for lease in leases:
        for part in lease.grant.parts:
            promised[part.device] = promised.get(part.device, 0) + part.memory
    return promised


def place(
    candidates: Sequence[Device], *, count: int | str, memory: Mapping[str, int], policy: Policy, leases: Iterable[Lease]
) -> tuple[Device, ...]:
    """The `count` devices ("all", or a number; more than there are means all) for a new lease, in the candidates' order.

    Devices that can hold the wanted limit (`memory`: bytes by uuid) go before those that cannot, then those with the most memory not
    yet promised to anybody, then the lowest index. Every lease counts, admitted or not: kernels that start together spread.
    """
    if count == "all" or count >= len(candidates):
        return tuple(candidates)
    promised = memory_promised(leases)

    def rank(device: Device) -> tuple[bool, int, int]:
        total = policy.pool_memory(device)
        return memory[device.uuid] > total, promised.get(device.uuid, 0) - total, device.index

    chosen = {device.uuid for device in sorted(candidates, key=rank)[:count]}
    return tuple(device for device in candidates if device.uuid in chosen)


def find(token: str, devices: Sequence[Device]) -> Device | None:
    """The device with that index or UUID; a beginning of the UUID will do if it is unique. None: no such device."""
    if token.isascii() and token.isdigit():
        # Compared as text: a number of thousands of digits is no index, and no error either.
        wanted = token.lstrip("0") or "0"
        return next((device for device in devices if str(device.index) == wanted), None)
    if not token.startswith(("GPU-", "MIG-")):
        return None
    matches = [device for device in devices if device.uuid.startswith(token)]
    exact = [device for device in matches if device.uuid == token]
    return (exact or matches)[0] if len(exact or matches) == 1 else None


def visible(devices: Sequence[Device], value: str | None) -> tuple[tuple[Device, ...], InvalidValue | None]:
    """The devices that CUDA shows under ``CUDA_VISIBLE_DEVICES=value``, in that order, and what is wrong with the value if anything is.

    None (unset) shows all. The list ends at the first entry that names no device, so an empty value or -1 shows none; a device named
    twice makes CUDA show none at all; a number counts up to its first non-digit (the CUDA programming guide, and what PyTorch's own
    reading of the variable in ``torch/cuda/__init__.py`` found out about the rest). An index counts the devices in NVML's order, which
    is CUDA's with ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` and wherever the devices are alike.
    """
    if value is None:
        return tuple(devices), None
    seen: list[Device] = []
    for position, entry in enumerate(value.split(",")):
        entry = entry.strip()
        number = _LEADING_NUMBER.match(entry)
        device = find(number[0] if number else entry, devices)
        if device is None:
            hides_on_purpose = entry == "-1" or (entry == "" and position == 0)
            problem = InvalidValue(field="visible_devices", value=value, allowed=f"a list of {device_names(devices)}")
            return tuple(seen), None if hides_on_purpose else problem
        if device in seen:
            return (), InvalidValue(field="visible_devices", value=value, allowed=f"each device once, of {device_names(devices)}")
        seen.append(device)
    return tuple(seen), None


def requested(value: str, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices that somebody asked for by name: entries as in `find`, separated by commas. Raises `InvalidValue` (field ``device``)."""
    allowed = f"one or several of {device_names(devices)}"
    if not isinstance(value, str):
        raise InvalidValue(field="device", value=value, allowed=allowed)
    chosen = [find(token.strip(), devices) for token in value.split(",")]
    if None in chosen or len(set(chosen)) < len(chosen):
        raise InvalidValue(field="device", value=value, allowed=allowed)
    return tuple(chosen)


def unusable(device: Device, policy: Policy) -> str | None:
    """Why the pool cannot hand out `device`, for a person; None when it can."""
    if device.managed_by is not None:
        return f"device {device.index} ({device.name}) is managed by {device.managed_by}"
    if not policy.uses(device):
        return f"device {device.index} ({device.name}) is not in the pool (the policy's `devices`)"
    return None


def device_names(devices: Sequence[Device]) -> str:
    return ", ".join(f"{device.index} ({device.uuid})" for device in devices) or "no devices: there are none"
