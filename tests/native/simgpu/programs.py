"""Programs that use the simulated GPU as any CUDA program does: their libcuda.so.1 and libnvidia-ml.so.1 are the simulator's."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from jupyter_vgpu.native import locate

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT = 60  # seconds

PRELUDE = f"""
import sys
from cuda.bindings import driver
from cuda.bindings.driver import CUresult

KERNELS = open({str(ROOT / "examples" / "demo_kernels.ptx")!r}, "rb").read() + b"\\0"
MIB, GIB = 1024**2, 1024**3

def ok(result):
    status, *values = result
    assert status == CUresult.CUDA_SUCCESS, status
    return values[0] if len(values) == 1 else tuple(values)

def status(result):
    return result[0].name.removeprefix("CUDA_ERROR_")

def enter(device=0):
    ok(driver.cuInit(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(device))))
    ok(driver.cuCtxSetCurrent(context))
    return context

def kernel(name):
    return ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(KERNELS)), name))
"""


class Programs:
    """Runs programs against the device process at `socket`; it starts with the first of them if it is not there yet."""

    def __init__(self, directory: Path, *, socket: Path, spec: str) -> None:
        self._links = directory / "links"
        self._links.mkdir()
        (self._links / "libcuda.so.1").symlink_to(locate.library(locate.SIM_CUDA))
        (self._links / "libnvidia-ml.so.1").symlink_to(locate.library(locate.SIM_NVML))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("VGPU_", "CUDA_", "LD_"))}
        self.environment |= {"LD_LIBRARY_PATH": str(self._links), "VGPU_SIMGPU_SOCKET": str(socket), "VGPU_SIMULATED": spec}

    def start(self, code: str, **variables: str) -> subprocess.Popen[str]:
        """A program that goes on; it has `PRELUDE`'s names. The caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
            env=self.environment | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self, code: str, **variables: str) -> tuple[str, str]:
        """What the program wrote to stdout and stderr; it must end well."""
        process = self.start(code, **variables)
        try:
            output, errors = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
        assert process.returncode == 0, errors
        return output, errors

    def run(self, code: str, **variables: str) -> list[str]:
        """The lines that the program printed."""
        return self.result(code, **variables)[0].splitlines()
