"""Where the native libraries and headers are, in a wheel and in an editable install alike.

Everything else asks here: a path to a library is written down nowhere else.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

SHIM = "libvgpu_shim.so"
SHIM_NVML = "libvgpu_shim_nvml.so"
SCHEDULER = "libvgpu_scheduler.so"
SIM_CUDA = "libvgpu_sim_cuda.so"
SIM_NVML = "libvgpu_sim_nvml.so"
SIMGPU = "vgpu-simgpu"
SHARING = (SHIM, SHIM_NVML, SCHEDULER)
SIMULATOR = (SIM_CUDA, SIM_NVML, SIMGPU)
FILES = SHARING + SIMULATOR

_HERE = Path(__file__).resolve().parent


class NativeUnavailable(RuntimeError):
    """This installation has no usable native part; the message says why and what to do."""


def library_directory() -> Path:
    return _HERE / "lib"


def library(name: str) -> Path:
    """The path of one of `FILES`. Raises `NativeUnavailable` if it is not installed."""
    path = library_directory() / name
    if not path.is_file():
        raise NativeUnavailable(_platform_reason() or _missing_reason([name]))
    return path


def header(name: str) -> Path:
    """The path of a header of ``native/include/vgpu``: beside this file in a wheel, in the source tree in an editable install."""
    source = _HERE.parent.parent / "native" / "include" / "vgpu" / name
    # The source tree first: an earlier `cmake --install` leaves a copy in the package that goes stale with the next edit.
    for path in (source, _HERE / "include" / "vgpu" / name):
        if path.is_file():
            return path
    raise NativeUnavailable(f"the header vgpu/{name} is not in this installation; reinstall jupyter-vgpu")


def available(environ: Optional[Mapping[str, str]] = None) -> bool:
    """Whether kernels can run under the shim here; see `unavailable_reason`."""
    return unavailable_reason(environ) is None


def unavailable_reason(environ: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """Why kernels with this environment (None: this process's) cannot run under the shim here, for a person; None if they can.

    Called by provisioner, server extension and `doctor` before they ask for a lease. The simulator's files are needed by simulated devices
    alone: a packager may leave them out.
    """
    reason = _platform_reason()
    if reason:
        return reason
    simulated = bool((os.environ if environ is None else environ).get("VGPU_SIMULATED"))
    missing = [name for name in (FILES if simulated else SHARING) if not (library_directory() / name).is_file()]
    return _missing_reason(missing) if missing else None


def _platform_reason() -> Optional[str]:
    if sys.platform != "linux":
        return f"jupyter-vgpu shares GPUs on Linux only; this is {platform.system()}, so kernels are left alone"
    return None


def _missing_reason(names: list) -> str:
    return (
        f"this installation has no native part for {platform.machine()} ({', '.join(names)} missing); install a wheel for this platform, "
        "or install from source with a C++17 compiler"
    )
