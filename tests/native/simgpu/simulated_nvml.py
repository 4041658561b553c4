"""pynvml in the test's own process, over the simulated libnvidia-ml.so.1."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pynvml

from jupyter_vgpu.native import locate


@contextlib.contextmanager
def simulated_nvml(*, socket: Path, spec: str) -> Iterator[ModuleType]:
    """pynvml, not yet initialised, bound to the simulator's library and to the device process at `socket`.

    The environment stays changed inside, because the library reads it when it is initialised. Afterwards NVML is shut down however often
    the test initialised it, and pynvml is as it was.
    """
    library = ctypes.CDLL(str(locate.library(locate.SIM_NVML)))
    with (
        mock.patch.dict(os.environ, {"VGPU_SIMGPU_SOCKET": str(socket), "VGPU_SIMULATED": spec}),
        mock.patch.object(pynvml, "nvmlLib", library),
        mock.patch.object(pynvml, "_nvmlGetFunctionPointer_cache", {}),
        mock.patch.object(pynvml, "_nvmlLib_refcount", 0),
    ):
        try:
            yield pynvml
        finally:
            while library.nvmlShutdown() == pynvml.NVML_SUCCESS:
                pass
