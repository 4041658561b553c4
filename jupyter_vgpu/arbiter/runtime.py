"""Where an arbiter lives: the directory that holds its sockets, lock, log and journal. See docs/architecture.md."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_vgpu.native.links import private_directory, user_directory
from jupyter_vgpu.pool.model import InvalidValue

HOST_DIRECTORY = Path("/run/jupyter-vgpu")
UNIX_PATH_MAXIMUM = 107
_SOCKET = "arbiter.sock"


@dataclass(frozen=True)
class Runtime:
    """The files of one arbiter. Nothing is made here."""

    directory: Path
    socket: Path

    @property
    def shim_socket(self) -> Path:
        return self.directory / "shim.sock"

    @property
    def lock(self) -> Path:
        return self.directory / "arbiter.lock"

    @property
    def log(self) -> Path:
        return self.directory / "arbiter.log"

    @property
    def journal(self) -> Path:
        return self.directory / "journal.sqlite"


def find_runtime(environ: Mapping[str, str]) -> Runtime:
    """The arbiter that `environ` means: VGPU_SOCKET, else the host service if it answers, else the user's own.

    Called by clients before they connect and before they start an arbiter. Makes the user's directory if it is missing. Raises
    `InvalidValue` for a VGPU_SOCKET that cannot be a socket's path, `PermissionError` for a directory that belongs to somebody else.
    """
    given = environ.get("VGPU_SOCKET")
    if given:
        if not os.path.isabs(given) or not _fits(given):
            raise InvalidValue(field="VGPU_SOCKET", value=given, allowed=f"an absolute path of at most {UNIX_PATH_MAXIMUM} bytes")
        return Runtime(directory=Path(given).parent, socket=Path(given))
    host = host_runtime(environ)
    if answers(host.socket):
        return host
    below = _simulated_name(environ)
    directory = user_directory(environ)
    # An XDG_RUNTIME_DIR so deep that its sockets cannot be bound is of no use.
    if not _fits(str(directory / below / _SOCKET)):
        directory = private_directory(Path("/tmp") / f"jupyter-vgpu-{os.getuid()}")
    if below:
        directory = private_directory(directory / below)
    return Runtime(directory=directory, socket=directory / _SOCKET)


def host_runtime(environ: Mapping[str, str]) -> Runtime:
    """Where the host service for these devices lives, whether one runs or not. Nothing is made here: see `make_host_directory`."""
    directory = HOST_DIRECTORY / _simulated_name(environ)
    return Runtime(directory=directory, socket=directory / _SOCKET)


def make_host_directory(runtime: Runtime) -> None:
    """Makes the host service's directory, for all users to enter and for its owner alone to write. Called before it starts.

    Raises `PermissionError` for a directory that others could write: they could put their own sockets into it.
    """
    for directory in (HOST_DIRECTORY, runtime.directory):
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        status = os.lstat(directory)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{directory} is not a directory of uid {os.getuid()}; remove it, then start the host service again")
        os.chmod(directory, 0o755)  # whatever the umask


def answers(path: Path) -> bool:
    """Whether somebody listens on the Unix socket `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _fits(path: str) -> bool:
    return len(os.fsencode(path)) <= UNIX_PATH_MAXIMUM


def _simulated_name(environ: Mapping[str, str]) -> str:
    spec = environ.get("VGPU_SIMULATED", "").strip()
    if not spec:
        return ""
    if len(spec) <= 32 and re.fullmatch(r"[A-Za-z0-9,=.]+", spec):
        return f"simulated-{spec}"
    return f"simulated-{hashlib.sha256(spec.encode()).hexdigest()[:16]}"
