"""One arbiter a device, host-wide: the owner listens on an abstract Unix socket named by the device's UUID.

The kernel drops the name with its process, so a kill -9 leaves nothing behind, and SO_PEERCRED tells everybody else who the owner is.
Abstract names belong to a network namespace: containers do not share this lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket

from jupyter_vgpu.arbiter.processes import peer, user_name


def _address(uuid: str) -> str:
    return f"\0jupyter-vgpu/device/{uuid}"


class DeviceLocks:
    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._held: dict[str, socket.socket] = {}

    def acquire(self, uuid: str) -> str | None:
        """Takes the device, or says who has it (``pid 123 of alice``); None = it is ours. Called again once a second for foreign ones."""
        if uuid in self._held:
            return None
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        lock.setblocking(False)
        try:
            lock.bind(_address(uuid))
            lock.listen(16)
        except OSError as error:
            lock.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return _holder(uuid)
        self._loop.add_reader(lock, _accept, lock)
        self._held[uuid] = lock
        return None

    def holds(self, uuid: str) -> bool:
        return uuid in self._held

    def release(self, uuid: str) -> None:
        lock = self._held.pop(uuid, None)
        if lock is not None:
            self._loop.remove_reader(lock)
            lock.close()

    def close(self) -> None:
        for uuid in list(self._held):
            self.release(uuid)


def _accept(lock: socket.socket) -> None:
    # Who asks has his answer by having connected; accepting only keeps the backlog from filling up.
    with contextlib.suppress(OSError):
        lock.accept()[0].close()


def _holder(uuid: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as question:
        question.setblocking(False)
        try:
            question.connect(_address(uuid))
            owner = peer(question)
        except OSError:
            return "another arbiter"
    return f"pid {owner.pid} of {user_name(owner.uid)}"
