"""Who must be told when a process dies: the Python side of the native thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from jupyter_vgpu.native.control import ControlPage
from jupyter_vgpu.native.scheduler import Scheduler


class Watches:
    """Keys are never used twice, so a late report cannot be taken for somebody else's."""

    def __init__(self, scheduler: Scheduler):
        self._scheduler = scheduler
        self._keys = itertools.count(1)
        self._callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, pidfd: int, died: Callable[[], None], *, page: ControlPage | None = None, slot: int = 0) -> int:
        """Calls `died` once from `dispatch`, after the native thread has freed `slot` of `page`. `pidfd` stays the caller's."""
        key = next(self._keys)
        self._scheduler.watch(key, pidfd, page=page, slot=slot)
        self._callbacks[key] = died
        return key

    def unwatch(self, key: int) -> None:
        self._callbacks.pop(key, None)
        self._scheduler.unwatch(key)

    def dispatch(self) -> None:
        """Called by the loop when the scheduler's event descriptor is readable."""
        for key in self._scheduler.take():
            callback = self._callbacks.pop(key, None)
            if callback is not None:
                callback()

    def __len__(self) -> int:
        return len(self._callbacks)
