"""The native thread (scheduler.h) from Python, by cffi's ABI mode: no compiler is needed where this runs."""

from __future__ import annotations

import os

from jupyter_vgpu.native import locate
from jupyter_vgpu.native.control import ControlPage, ffi
from jupyter_vgpu.native.headers import declarations

# The page's struct and the functions that take it must come from one FFI.
ffi.cdef(declarations("scheduler.h"))

_BATCH = 64


class Scheduler:
    """Watches processes by pidfd and frees the slots of the dead at once, whatever the Python loop is doing.

    Owned by the arbiter's process; `event_descriptor` goes into its loop, which then calls `take`.
    Raises `NativeUnavailable` if the library is not installed.
    """

    def __init__(self) -> None:
        self._library = ffi.dlopen(str(locate.library(locate.SCHEDULER)))
        result = ffi.new("struct vgpu_scheduler **")
        _check(self._library.vgpu_scheduler_create(result))
        self._handle = result[0]

    @property
    def event_descriptor(self) -> int:
        return self._library.vgpu_scheduler_event_fd(self._handle)

    def watch(self, key: int, pidfd: int, *, page: ControlPage | None = None, slot: int = 0) -> None:
        """Watches the process behind `pidfd`, which stays the caller's to close.

        With a `page`, its `slot` is freed on the process's death; the page must stay mapped until the key is unwatched or taken.
        """
        _check(self._library.vgpu_scheduler_watch(self._handle, key, pidfd, page.pointer if page else ffi.NULL, slot))

    def unwatch(self, key: int) -> None:
        """Afterwards the thread touches no page for `key`. A key that is not watched (any more) is no error."""
        self._library.vgpu_scheduler_unwatch(self._handle, key)

    def take(self) -> list[int]:
        """The keys of processes that have died, in the order of their deaths, each once."""
        keys = ffi.new("uint64_t[]", _BATCH)
        dead: list[int] = []
        while count := self._library.vgpu_scheduler_take(self._handle, keys, _BATCH):
            dead += list(keys[0:count])
        return dead

    def close(self) -> None:
        self._library.vgpu_scheduler_destroy(self._handle)
        self._handle = ffi.NULL


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
