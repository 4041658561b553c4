"""What `doctor` looks at. Every check answers, whatever it finds: an exception here would hide the other answers."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Optional

from jupyter_vgpu.arbiter.client import ArbiterClient, ArbiterUnavailable
from jupyter_vgpu.arbiter.runtime import find_runtime
from jupyter_vgpu.devices import choose
from jupyter_vgpu.native.links import link_directories
from jupyter_vgpu.native.locate import NativeUnavailable, unavailable_reason
from jupyter_vgpu.pool.model import InvalidValue

_REACHES_SHIM = "import ctypes, os; ctypes.CDLL('libcuda.so.1'); print(open('/proc/self/maps').read())"


@dataclass(frozen=True)
class Check:
    """One answer. `advice` says what to do, where there is something to do."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    advice: Optional[str] = None


def all_checks(environ: Mapping[str, str]) -> list[Check]:
    """Called by `doctor`. Starts an arbiter if none runs, since what it finds out (locks, policy) is part of the answer."""
    checks: list[Check] = [versions()]
    for name, check in _CHECKS.items():
        try:
            checks.append(check(environ))
        except (ArbiterUnavailable, NativeUnavailable, InvalidValue, OSError, subprocess.SubprocessError) as error:
            checks.append(Check(name, "fail", str(error)))
    return checks + pool_checks(environ)


def versions() -> Check:
    found = [f"Python {platform.python_version()}", "-".join(platform.libc_ver()) or "no glibc"]
    for package in ("jupyter-vgpu", "jupyter-server", "jupyter-client", "jupyterlab", "ipykernel"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return Check("versions", "ok", ", ".join(found))


def native(environ: Mapping[str, str]) -> Check:
    reason = unavailable_reason(environ)
    return Check("native part", "fail", reason) if reason else Check("native part", "ok", "everything that these devices need is installed")


def driver(environ: Mapping[str, str]) -> Check:
    kind = choose(environ)
    if kind == "simulated":
        return Check("driver", "warn", f"simulated devices: {environ['VGPU_SIMULATED']}", "unset VGPU_SIMULATED to use real ones")
    if kind is None:
        advice = "kernels are left alone; to try jupyter-vgpu without a GPU set VGPU_SIMULATED=2x16GiB"
        return Check("driver", "warn", "there is no NVIDIA GPU on this machine", advice)
    import pynvml

    try:
        pynvml.nvmlInit()
        detail = f"{pynvml.nvmlSystemGetDriverVersion()}, {pynvml.nvmlDeviceGetCount()} GPU(s)"
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Check("driver", "fail", f"NVML: {error}", "run nvidia-smi; after a driver update the machine may need a restart")
    return Check("driver", "ok", detail)


def links(environ: Mapping[str, str]) -> Check:
    return Check("link directory", "ok", str(link_directories(environ).shim.parent))


def shim(environ: Mapping[str, str]) -> Check:
    """Whether a process under the shim's environment gets the shim when it asks for the driver's name."""
    directories = link_directories(environ)
    environment = {**environ, "LD_PRELOAD": str(directories.shim / "libcuda.so.1"), "LD_LIBRARY_PATH": str(directories.shim)}
    result = subprocess.run([sys.executable, "-c", _REACHES_SHIM], env=environment, capture_output=True, text=True, timeout=20)
    target = os.path.realpath(directories.shim / "libcuda.so.1")
    if target in result.stdout:
        return Check("shim", "ok", "libcuda.so.1 is the shim in a tenant")
    said = (result.stderr.strip().splitlines() or ["another libcuda.so.1 was loaded"])[-1]
    return Check("shim", "fail", said, "the shim needs glibc 2.28 or newer and a program that is neither static nor set-uid")


def capabilities(environ: Mapping[str, str]) -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
        os.close(os.memfd_create("vgpu-doctor", os.MFD_ALLOW_SEALING))
    except (OSError, AttributeError) as error:
        return Check(
            "capabilities", "fail", str(error), "pidfd_open and memfd_create are needed: Linux 5.3 or newer, not filtered by seccomp"
        )
    return Check("capabilities", "ok", f"Linux {platform.release()}: pidfd and sealed memfd work")


def provisioner(environ: Mapping[str, str]) -> Check:
    names = {entry.name for entry in importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners")}
    if "vgpu" not in names:
        return Check("provisioner", "fail", "jupyter_client does not find the provisioner vgpu", "reinstall jupyter-vgpu")
    default = environ.get("JUPYTER_DEFAULT_PROVISIONER_NAME")
    if default not in (None, "vgpu"):
        advice = "unset JUPYTER_DEFAULT_PROVISIONER_NAME, or set it to vgpu"
        return Check("provisioner", "warn", f"JUPYTER_DEFAULT_PROVISIONER_NAME={default}: kernels start without a lease", advice)
    if default is None:
        return Check("provisioner", "ok", "vgpu; Jupyter servers use it; nbclient and papermill need JUPYTER_DEFAULT_PROVISIONER_NAME=vgpu")
    return Check("provisioner", "ok", "vgpu, for every client in this environment")


def tenancy(environ: Mapping[str, str]) -> Check:
    if environ.get("VGPU_TOKEN"):
        return Check("tenancy", "ok", f"this shell runs inside the tenant of lease {environ.get('VGPU_LEASE')}; it sees that lease only")
    return Check("tenancy", "ok", "this shell is no tenant")


def pool_checks(environ: Mapping[str, str]) -> list[Check]:
    """The arbiter's socket, the device locks and the policy, as the arbiter itself sees them."""
    try:
        runtime = find_runtime(environ)
        pool = ArbiterClient.start(environ).pool()
    except (ArbiterUnavailable, InvalidValue, OSError) as error:
        return [Check("arbiter", "fail", str(error), "the arbiter's log is beside its socket; VGPU_SOCKET chooses another place")]
    arbiter, policy = pool["arbiter"], pool["policy"]
    checks = [Check("arbiter", "ok", f"pid {arbiter['pid']} of {arbiter['owner']} ({arbiter['scope']}), {runtime.socket}")]
    taken = [f"{device['name']}: managed by {device['managed_by']}" for device in pool["devices"] if device["managed_by"]]
    if taken:
        advice = "several users share devices through the host service: jupyter vgpu arbiter --host (docs/operators.md)"
        checks.append(Check("locks", "warn", "; ".join(taken), advice))
    else:
        checks.append(Check("locks", "ok", f"{len(pool['devices'])} device(s) held by this arbiter"))
    if policy["error"]:
        checks.append(Check("policy", "warn", policy["error"], "`jupyter vgpu policy check FILE`; the last good policy is in force"))
    else:
        checks.append(Check("policy", "ok", policy["source"] or "built in: no policy file"))
    return checks


_CHECKS: dict[str, Callable[[Mapping[str, str]], Check]] = {
    "native part": native,
    "capabilities": capabilities,
    "driver": driver,
    "link directory": links,
    "shim": shim,
    "provisioner": provisioner,
    "tenancy": tenancy,
}
