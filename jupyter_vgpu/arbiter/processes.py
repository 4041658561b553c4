"""What the operating system says of a process: who it is, and whether it is still the same one."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

# linux/socket.h, Linux 6.5 and newer; Python has no name for it yet.
_SO_PEERPIDFD = 77
_COMMAND_LENGTH = 64


class NoSuchProcess(LookupError):
    """The process is gone, or is another one by now."""


@dataclass(frozen=True)
class Peer:
    """The process at the other end of a Unix socket, when it connected."""

    pid: int
    uid: int


def peer(connection: socket.socket) -> Peer:
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return Peer(pid=pid, uid=uid)


def peer_pidfd(connection: socket.socket) -> int:
    """A pidfd of the peer; the caller closes it. Raises `NoSuchProcess` if it is dead.

    SO_PEERPIDFD cannot be deceived by a pid that was handed out again; older kernels leave a gap between SO_PEERCRED and pidfd_open.
    """
    try:
        (descriptor,) = struct.unpack("i", connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))
    except OSError:
        return open_pidfd(peer(connection).pid)
    os.set_inheritable(descriptor, False)
    return descriptor


def open_pidfd(pid: int, *, started: int | None = None) -> int:
    """A pidfd of `pid`; the caller closes it. With `started`, only if the process is still the one that started then."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError, OverflowError) as error:
        raise NoSuchProcess(f"no process {pid}") from error
    if started is not None and start_time(pid) != started:
        os.close(descriptor)
        raise NoSuchProcess(f"process {pid} is another one by now")
    return descriptor


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot (proc(5), field 22 of stat); None if it is gone or dead."""
    try:
        # The command may hold spaces and parentheses: what follows the last one is regular.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None


def owner_uid(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def command(pid: int) -> str | None:
    """The process's short name, for a person."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()[:_COMMAND_LENGTH]
    return None


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
