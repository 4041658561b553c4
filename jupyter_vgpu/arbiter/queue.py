"""Who waits for a device: first come, first served within a priority. Pure state with an explicit clock (monotonic seconds)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jupyter_vgpu.pool.model import PRIORITIES, Priority


@dataclass(frozen=True)
class Waiting:
    """A lease whose first context waits. `since` is for people (seconds since the epoch), `deadline` is on the queue's clock."""

    lease_id: str
    priority: Priority
    devices: frozenset[str]
    reason: str
    since: float
    deadline: float


class Queue:
    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}

    def add(self, entry: Waiting) -> None:
        """A lease waits once, however many of its processes do: a second entry changes neither place nor deadline."""
        self._waiting.setdefault(entry.lease_id, entry)

    def remove(self, lease_id: str) -> None:
        self._waiting.pop(lease_id, None)

    def update(self, lease_id: str, *, priority: Priority, devices: Iterable[str]) -> None:
        """The lease was changed while it waits."""
        if lease_id in self._waiting:
            self._waiting[lease_id] = replace(self._waiting[lease_id], priority=priority, devices=frozenset(devices))

    def order(self) -> list[Waiting]:
        """The queue, head first. dict keeps the order of arrival and sorted() is stable."""
        return sorted(self._waiting.values(), key=lambda entry: PRIORITIES.index(entry.priority))

    def position(self, lease_id: str) -> int | None:
        return next((index for index, entry in enumerate(self.order(), start=1) if entry.lease_id == lease_id), None)

    def reason(self, lease_id: str) -> str | None:
        entry = self._waiting.get(lease_id)
        return entry.reason if entry else None

    def expired(self, *, now: float) -> list[str]:
        """The leases whose time is up; they are taken out."""
        late = [entry.lease_id for entry in self._waiting.values() if entry.deadline <= now]
        for lease_id in late:
            del self._waiting[lease_id]
        return late

    def admit(self, admissible: Callable[[str], str | None]) -> list[str]:
        """The leases that may run now, in order; they are taken out.

        `admissible` is asked for each (None = yes, else the reason) and has to count those it said yes to. Nobody passes an earlier one on
        a device that both want: a small lease would starve a large one.
        """
        blocked: set[str] = set()
        admitted = []
        for entry in self.order():
            reason = "others wait for the same device" if blocked & entry.devices else admissible(entry.lease_id)
            if reason is None:
                admitted.append(entry.lease_id)
                del self._waiting[entry.lease_id]
            else:
                blocked |= entry.devices
                self._waiting[entry.lease_id] = replace(entry, reason=reason)
        return admitted

    def __contains__(self, lease_id: str) -> bool:
        return lease_id in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)
