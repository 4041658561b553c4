"""What the pool consists of: plain, frozen values. No I/O and no clock; every rule in this package works on these.

Memory is in bytes, compute in fractions of one device (0.01 to 1.0), times in seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Optional

Priority = Literal["interactive", "batch"]
LeaseState = Literal["starting", "queued", "active", "idle"]

PRIORITIES: tuple[Priority, ...] = ("interactive", "batch")
COMPUTE_MINIMUM = 0.01
COMPUTE_MAXIMUM = 1.0
NO_CAP = "none"
"""`LeaseRequest.compute_cap` that takes a cap away, where None means "not asked" (the API's null, `%vgpu compute_cap=none`)."""


@dataclass(frozen=True)
class Device:
    """One accelerator that the pool may hand out: a GPU, a MIG instance or a simulated GPU."""

    uuid: str
    index: int
    name: str
    memory_total: int
    simulated: bool = False
    managed_by: Optional[str] = None
    """Another arbiter that holds this device; None when this one does."""


@dataclass(frozen=True)
class LeasePart:
    """What a lease holds of one device."""

    device: str
    memory: int
    memory_guarantee: int = 0
    compute: float = 1.0
    compute_cap: Optional[float] = None


@dataclass(frozen=True)
class LeaseRequest:
    """What somebody asked for, before the policy has spoken. None means "not asked".

    `memory` is as given (``"8GiB"`` or bytes): parsing it is a rule, and a wrong value must be reported as it came.
    """

    lease_class: Optional[str] = None
    memory: Optional[object] = None
    compute: Optional[object] = None
    compute_cap: Optional[object] = None
    share: Optional[object] = None
    priority: Optional[str] = None
    device: Optional[str] = None
    visible_devices: Optional[str] = None


@dataclass(frozen=True)
class Grant:
    """What the policy makes of a request: the lease's shape, and for a person the reason where it differs from the request."""

    parts: tuple[LeasePart, ...]
    priority: Priority
    lease_class: Optional[str] = None
    message: Optional[str] = None


@dataclass(frozen=True)
class Lease:
    """A lease as the arbiter keeps it. Use and processes are not in here: they are read from the control page."""

    id: str
    grant: Grant
    name: str
    uid: int
    owner: str
    created: float
    kernel_id: Optional[str] = None
    path: Optional[str] = None
    admitted: bool = False
    request: LeaseRequest = field(default_factory=LeaseRequest)


class InvalidValue(ValueError):
    """A wrong value from outside: names the field, what came and what is allowed.

    `code` is the API's error code: ``invalid`` (400), ``forbidden`` (403), ``not_found`` (404) or ``conflict`` (409).
    """

    def __init__(self, *, field: Optional[str], value: Any, allowed: Optional[str], message: Optional[str] = None, code: str = "invalid"):
        super().__init__(message or f"{field}: {value!r} is not allowed; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed
        self.code = code
