"""The arbiter's process: `python -m jupyter_vgpu.arbiter`. Started detached by a client, or in the foreground as the host service."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from jupyter_vgpu.arbiter.runtime import Runtime
from jupyter_vgpu.arbiter.service import LINGER, Arbiter
from jupyter_vgpu.devices import DeviceBackend, DevicesUnavailable, Nvml, choose
from jupyter_vgpu.native.environment import arbiter_environment
from jupyter_vgpu.native.links import private_directory
from jupyter_vgpu.native.locate import NativeUnavailable
from jupyter_vgpu.pool.model import InvalidValue

BackendFactory = Callable[[Mapping[str, str]], tuple[DeviceBackend | None, str | None, bool]]

_log = logging.getLogger("jupyter_vgpu.arbiter")


def find_backend(environ: Mapping[str, str]) -> tuple[DeviceBackend | None, str | None, bool]:
    """The devices that `environ` means: (backend, why there is none, whether they are simulated)."""
    kind = choose(environ)
    if kind is None:
        return None, "No GPU was found on this machine; VGPU_SIMULATED=2x16GiB gives simulated ones.", False
    try:
        return Nvml(), None, kind == "simulated"
    except DevicesUnavailable as error:
        return None, str(error), kind == "simulated"


def main(arguments: list[str] | None = None, *, backend: BackendFactory = find_backend) -> int:
    """0 = it ran, or another one serves this directory; 1 = it could not run, and the last line on stderr says why."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("watchdog").setLevel(logging.WARNING)
    os.umask(0o077)
    runtime = Runtime(directory=options.socket.parent, socket=options.socket)
    try:
        _enter_environment(runtime)
        if not runtime.directory.exists():
            private_directory(runtime.directory)  # one that exists is the user's choice (VGPU_SOCKET), and its mode his own
        lock = _take_lock(runtime.lock)
    except (OSError, NativeUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    if lock is None:
        _log.info("another arbiter serves %s", runtime.directory)
        return 0
    ready = _detach() if options.detach else None
    try:
        asyncio.run(_serve(runtime, options, backend=backend, ready=ready))
    except (OSError, NativeUnavailable, InvalidValue) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        os.close(lock)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jupyter_vgpu.arbiter", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="the HTTP socket; its directory holds everything of this arbiter")
    parser.add_argument("--linger", type=float, default=LINGER, help="seconds to stay after the last client and tenant (%(default)g)")
    parser.add_argument("--host", action="store_true", help="serve all users of this machine, and never end by itself")
    parser.add_argument("--detach", action="store_true", help="return when the arbiter serves, which goes on in a session of its own")
    return parser


def _enter_environment(runtime: Runtime) -> None:
    """The dynamic loader reads LD_LIBRARY_PATH when a process starts, so one that was started without the simulator's starts again."""
    wanted = arbiter_environment(os.environ, directory=runtime.directory)
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted)


def _take_lock(path: Path) -> int | None:
    """The lock of the directory, held as long as the descriptor is open; None if another arbiter holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _detach() -> int:
    """Goes on in a child with a session of its own, so that neither its starter's terminal nor its starter's end concerns it, and so that
    the starter is left with no child to collect. The parent waits until the child writes to the returned descriptor, or has failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        return writer
    os.close(writer)
    if os.read(reader, 1):
        os._exit(0)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


async def _serve(runtime: Runtime, options: argparse.Namespace, *, backend: BackendFactory, ready: int | None) -> None:
    _raise_descriptor_limit()
    devices, unavailable, simulated = backend(os.environ)
    arbiter = Arbiter(
        runtime,
        backend=devices,
        unavailable=unavailable,
        simulated=simulated,
        environ=os.environ,
        scope="host" if options.host else "user",
        linger=options.linger,
    )
    try:
        await arbiter.start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, arbiter.stop)
        _log.info("serving %s with %d devices", runtime.socket, len(arbiter.state.inventory.devices))
        if ready is not None:
            os.write(ready, b"1")
            os.close(ready)
        await arbiter.run()
    finally:
        await arbiter.close()


def _raise_descriptor_limit() -> None:
    """Each tenant takes a handful of descriptors; the usual soft limit is for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
