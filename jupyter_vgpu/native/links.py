"""Per-user directories of symlinks under which the native libraries are loaded.

The dynamic loader knows a library by its file name (``libcuda.so.1``), a wheel cannot hold links, and two copies of the shim would be two
shims. So the names are made at run time, in a directory that belongs to the user and is keyed by the identity of the files behind it:
an upgrade makes new links and leaves those that running kernels use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_vgpu.native import locate

_NAMES = {
    "shim": {"libcuda.so": locate.SHIM, "libcuda.so.1": locate.SHIM, "libnvidia-ml.so.1": locate.SHIM_NVML},
    "sim": {"libcuda.so": locate.SIM_CUDA, "libcuda.so.1": locate.SIM_CUDA, "libnvidia-ml.so.1": locate.SIM_NVML},
}

_Target = tuple[str, str, Path]
"""Kind of directory, name of the link in it, and the file behind it."""


@dataclass(frozen=True)
class LinkDirectories:
    """`shim` goes in front of what a tenant has; `sim` stands where the driver would be, for simulated devices."""

    shim: Path
    sim: Path


def user_directory(environ: Mapping[str, str]) -> Path:
    """This user's own runtime directory, made if it is missing: mode 0700, owner checked, never in $HOME (which may be on NFS).

    Raises `PermissionError` if somebody else owns it: a directory in /tmp can be made by anybody first.
    """
    base = environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isabs(base) and os.access(base, os.W_OK | os.X_OK):
        path = Path(base) / "jupyter-vgpu"
    else:
        path = Path("/tmp") / f"jupyter-vgpu-{os.getuid()}"
    return private_directory(path)


def private_directory(path: Path) -> Path:
    """Makes `path` (its parent must exist) as 0700, or checks that it is a real directory of ours that nobody else can write."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        advice = "remove it, or set XDG_RUNTIME_DIR to a directory of your own"
        raise PermissionError(f"{path} is not a directory of uid {os.getuid()}; {advice}")
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, 0o700)
    return path


def link_directories(environ: Mapping[str, str]) -> LinkDirectories:
    """The link directories for the installed libraries, made if they are missing. Raises `NativeUnavailable` without libraries.

    An installation may lack the simulator; then there are no links in `sim`, and simulated devices raise `NativeUnavailable`.
    """
    simulator = bool(environ.get("VGPU_SIMULATED")) or all((locate.library_directory() / file).is_file() for file in locate.SIMULATOR)
    targets = [
        (kind, name, locate.library(file)) for kind, names in _NAMES.items() if kind == "shim" or simulator for name, file in names.items()
    ]
    root = private_directory(user_directory(environ) / "links")
    build = root / _build_key(targets)
    if not _complete(build, targets):
        _make(root, build, targets)
    return LinkDirectories(shim=build / "shim", sim=build / "sim")


def _build_key(targets: list[_Target]) -> str:
    digest = hashlib.sha256()
    for file in sorted({str(target) for _, _, target in targets}):
        status = os.stat(file)
        digest.update(f"{file}\0{status.st_dev}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _complete(build: Path, targets: list[_Target]) -> bool:
    try:
        return all(os.readlink(build / kind / name) == str(target) for kind, name, target in targets)
    except OSError:
        return False


def _make(root: Path, build: Path, targets: list[_Target]) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
    try:
        for kind, name, target in targets:
            (temporary / kind).mkdir(exist_ok=True)
            os.symlink(target, temporary / kind / name)
        try:
            os.rename(temporary, build)  # atomic: nobody ever sees half of it
        except OSError:
            if _complete(build, targets):  # another process was first
                return
            # A tmp cleaner took some of the links: what is left is moved aside, since rename does not replace a directory with content.
            os.rename(build, temporary / "broken")
            os.rename(temporary, build)
            shutil.rmtree(build / "broken")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
