"""The environment that puts a process under the shim. See docs/architecture.md, "Environment variables"."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from jupyter_vgpu.native.links import link_directories, user_directory

STARTUP = Path(__file__).resolve().parent.parent / "kernel" / "startup.py"


class CreatedLease(TypedDict):
    """What the arbiter answers to createLease (openapi.yaml)."""

    lease: Mapping[str, Any]
    token: str
    shim_socket: str


def tenant_environment(environ: Mapping[str, str], *, created: CreatedLease, socket: Path, startup: bool) -> dict[str, str]:
    """The complete environment for a tenant's first process.

    Called by the provisioner (pre_launch) and by `jupyter vgpu run`. `environ` is what the process would have got without us, `created`
    the arbiter's answer, `socket` the arbiter's HTTP socket, `startup` whether the process is a Python kernel that shall have `%vgpu`.
    What the user has in LD_PRELOAD, LD_LIBRARY_PATH and PYTHONSTARTUP stays in force behind ours; CUDA_VISIBLE_DEVICES is used up.

    A process that joins its parent's lease passes a lease of an `id` alone: there CUDA_VISIBLE_DEVICES indexes into it already.

    Raises `NativeUnavailable` where the libraries are missing and `OSError` where the link directories cannot be made.
    """
    links = link_directories(environ)
    simulated = bool(environ.get("VGPU_SIMULATED"))
    result = dict(environ)
    result["LD_PRELOAD"] = _prepend([str(links.shim / "libcuda.so.1"), str(links.shim / "libnvidia-ml.so.1")], environ.get("LD_PRELOAD"))
    directories = [str(links.shim)] + ([str(links.sim)] if simulated else [])
    result["LD_LIBRARY_PATH"] = _prepend(directories, environ.get("LD_LIBRARY_PATH"), keep_empty=True)
    result["VGPU_SOCKET"] = str(socket)
    result["VGPU_SHIM_SOCKET"] = created["shim_socket"]
    result["VGPU_TOKEN"] = created["token"]
    result["VGPU_LEASE"] = created["lease"]["id"]
    if simulated:
        result["VGPU_SIMGPU_SOCKET"] = simgpu_socket(environ, directory=Path(socket).parent)
    if created["lease"].get("parts"):
        # It has chosen the lease's devices already, and would be taken as an index into those: what the tenant sets later is one.
        result.pop("CUDA_VISIBLE_DEVICES", None)
    if startup:
        own = environ.get("PYTHONSTARTUP")
        if own and own != str(STARTUP):
            result["VGPU_PYTHONSTARTUP"] = own
        result["PYTHONSTARTUP"] = str(STARTUP)
    return result


def arbiter_environment(environ: Mapping[str, str], *, directory: Path) -> dict[str, str]:
    """The environment of the arbiter process itself: for simulated devices it reads the simulator's NVML, never the shim's.

    Called by the client before it starts an arbiter. A client may itself be a tenant (a notebook's terminal), so what makes a tenant is
    taken out.
    """
    # LD_PRELOAD goes as a whole: a stray preload has no business in the process that owns the pool, and the shim's would manage itself.
    result = {name: value for name, value in environ.items() if name not in ("VGPU_TOKEN", "VGPU_LEASE", "VGPU_SHIM_SOCKET", "LD_PRELOAD")}
    shims = user_directory(environ) / "links"
    paths = [path for path in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if not Path(path).match(f"{shims}/*/shim")]
    if environ.get("VGPU_SIMULATED"):
        sim = str(link_directories(environ).sim)
        paths = [sim, *(path for path in paths if path not in (sim, ""))]
        result["VGPU_SIMGPU_SOCKET"] = simgpu_socket(environ, directory=directory)
    if "LD_LIBRARY_PATH" in environ or environ.get("VGPU_SIMULATED"):
        result["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    return result


def simgpu_socket(environ: Mapping[str, str], *, directory: Path) -> str:
    """Where the simulated device process of the arbiter in `directory` listens."""
    return environ.get("VGPU_SIMGPU_SOCKET") or str(directory / "gpu.sock")


def _prepend(paths: list, existing: Any, *, keep_empty: bool = False) -> str:
    """`paths` in front of the colon-separated `existing`, each once. An empty entry of LD_LIBRARY_PATH means the working directory
    and is kept as the user's own."""
    rest = existing.split(os.pathsep) if existing else []
    return os.pathsep.join(paths + [entry for entry in rest if entry not in paths and (entry or keep_empty)])
