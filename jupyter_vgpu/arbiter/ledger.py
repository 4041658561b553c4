"""The sums over a tenant's slots, and who may add to them. A tenant writes `used` itself, so every sum is bounded by its own lease."""

from __future__ import annotations

from jupyter_vgpu.arbiter.tenants import Process, Tenant
from jupyter_vgpu.pool.units import format_size

# A slot that claims more than this lies or is broken; no sum of MAX_PROCESSES of them leaves 64 bits.
_BELIEVABLE = 1 << 50


def process_total(tenant: Tenant, process: Process, device: int) -> int:
    """Bytes that one process holds on a device of the lease, as far as it can be believed."""
    if tenant.page is None or process.slot is None:
        return 0
    return min(tenant.page.usage(process.slot, device).total, _BELIEVABLE)


def total(tenant: Tenant, device: int) -> int:
    """Bytes that the tenant holds on a device of the lease; may exceed its limit (a context alone can)."""
    return sum(process_total(tenant, process, device) for process in tenant.attached)


def shown(tenant: Tenant, device: int) -> int:
    """The same for people: 0 <= shown <= limit."""
    return min(total(tenant, device), tenant.lease.grant.parts[device].memory)


def process_shown(tenant: Tenant, process: Process) -> int:
    """What one process holds on all devices of the lease, for people."""
    return sum(min(process_total(tenant, process, index), part.memory) for index, part in enumerate(tenant.lease.grant.parts))


def used_by_device(tenant: Tenant) -> dict[str, int]:
    return {part.device: total(tenant, index) for index, part in enumerate(tenant.lease.grant.parts)}


def launches(tenant: Tenant) -> int:
    if tenant.page is None:
        return 0
    devices = range(len(tenant.lease.grant.parts))
    return sum(tenant.page.usage(process.slot, device).launches for process in tenant.attached for device in devices)


def grant(tenant: Tenant, process: Process, device: int, amount: int) -> str | None:
    """Books `amount` bytes for the process until it confirms them. None = booked; else why they do not fit the lease, for a person.

    Added first, summed afterwards and backed out if it is too much (protocol.h): the tenant's processes reserve for themselves meanwhile,
    and one that looked first and added then would let them both have the same bytes.
    """
    limit = tenant.lease.grant.parts[device].memory
    granted = tenant.page.usage(process.slot, device).granted
    if amount <= limit:
        tenant.page.set_granted(process.slot, device, granted + amount)
        if total(tenant, device) <= limit:
            return None
        tenant.page.set_granted(process.slot, device, granted)
    free = max(0, limit - total(tenant, device))
    return f"{format_size(amount)} asked, {format_size(free)} of the lease's {format_size(limit)} free"


def commit(tenant: Tenant, process: Process, device: int, amount: int) -> None:
    granted = tenant.page.usage(process.slot, device).granted
    tenant.page.set_granted(process.slot, device, max(0, granted - amount))


def set_residual(tenant: Tenant, process: Process, device: int, *, residual: int, may_fall: bool) -> None:
    """Notes what the driver holds for the process beyond its own allocations (context, modules).

    It rises at once and falls only with `may_fall`: a reservation that is booked and not yet allocated looks like a smaller residual, and
    believing that would let the tenant have the context's memory twice.
    """
    if residual > tenant.page.usage(process.slot, device).residual or may_fall:
        tenant.page.set_residual(process.slot, device, min(residual, _BELIEVABLE))
