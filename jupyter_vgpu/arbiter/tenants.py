"""The tenants: each a lease, the processes it consists of, and its control page."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from jupyter_vgpu.arbiter.activity import Activity
from jupyter_vgpu.native.control import MAX_PROCESSES, ControlPage, Identity
from jupyter_vgpu.pool.model import Lease

# Half of what the protocol's field holds, in hexadecimal: 256 bits.
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class ProcessRecord:
    """What the journal keeps of a process. `started` tells it from a later one with the same pid; `slot` is None until it attaches."""

    pid: int
    started: int
    slot: int | None = None


@dataclass
class Process:
    """A living process of a tenant."""

    record: ProcessRecord
    pidfd: int
    watch: int
    connected: bool = False

    @property
    def pid(self) -> int:
        return self.record.pid

    @property
    def slot(self) -> int | None:
        return self.record.slot


@dataclass
class Tenant:
    """One kernel or command with all its children. Mutable, owned by the arbiter's loop."""

    lease: Lease
    token_hash: bytes
    activity: Activity
    page: ControlPage | None = None
    page_identity: Identity | None = None
    """Of `page`, or of the page that its processes hold and have not yet presented after a restart of the arbiter."""
    processes: dict[int, Process] = field(default_factory=dict)
    holder: Process | None = None
    """The process that asked for the lease; None once it is dead."""
    denied_at: float = float("-inf")
    announced_state: str | None = None
    """The last of `active` and `idle` that listeners were told."""

    @property
    def id(self) -> str:
        return self.lease.id

    @property
    def attached(self) -> list[Process]:
        return [process for process in self.processes.values() if process.slot is not None]

    @property
    def orphaned(self) -> bool:
        """Nobody is left who could use or release the lease."""
        return self.holder is None and not self.processes

    def free_slot(self) -> int | None:
        taken = {process.slot for process in self.attached}
        return next((slot for slot in range(MAX_PROCESSES) if slot not in taken), None)

    def device_index(self, uuid: str) -> int | None:
        return next((index for index, part in enumerate(self.lease.grant.parts) if part.device == uuid), None)


class Tenants:
    """All tenants, by lease id and by token. The token itself is never kept."""

    def __init__(self) -> None:
        self._by_id: dict[str, Tenant] = {}
        self._by_token: dict[bytes, Tenant] = {}

    def add(self, tenant: Tenant) -> None:
        self._by_id[tenant.id] = tenant
        self._by_token[tenant.token_hash] = tenant

    def remove(self, tenant: Tenant) -> None:
        del self._by_id[tenant.id]
        del self._by_token[tenant.token_hash]

    def get(self, lease_id: str) -> Tenant | None:
        return self._by_id.get(lease_id)

    def by_token(self, token: str | bytes) -> Tenant | None:
        wanted = hash_token(token)
        tenant = self._by_token.get(wanted)
        # The look-up is by hash, so its timing says nothing about a token; the comparison is there for the day that it is not.
        return tenant if tenant is not None and hmac.compare_digest(tenant.token_hash, wanted) else None

    def by_pid(self, pid: int) -> Tenant | None:
        return next((tenant for tenant in self if pid in tenant.processes), None)

    def leases(self) -> tuple[Lease, ...]:
        return tuple(tenant.lease for tenant in self)

    def __iter__(self) -> Iterator[Tenant]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)


def new_token() -> str:
    return secrets.token_hex(_TOKEN_BYTES)


def new_lease_id() -> str:
    return secrets.token_hex(6)


def hash_token(token: str | bytes) -> bytes:
    return hashlib.sha256(token.encode(errors="replace") if isinstance(token, str) else token).digest()


def find_page(identity: Identity, pid: int) -> int | None:
    """A new descriptor of the control page that process `pid` holds, found by the memfd's own identity; None if it cannot be had.

    Used after a restart of the arbiter, before the shims have reconnected: from then on deaths are noticed on the page again.
    """
    directory = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(directory):
            status = os.stat(f"{directory}/{name}")
            if (status.st_dev, status.st_ino) == (identity.device, identity.inode):
                return os.open(f"{directory}/{name}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    return None
