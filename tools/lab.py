#!/usr/bin/env python3
"""Opens JupyterLab with the example notebook: on the real GPUs if NVML finds any, else on simulated ones, and says which.

Arguments are passed on to `jupyter lab`. A VGPU_SIMULATED that is already set stays as it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pynvml

ROOT = Path(__file__).resolve().parent.parent
SIMULATED = "2x16GiB"


def real_gpus() -> int:
    """How many GPUs NVML finds; 0 without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return pynvml.nvmlDeviceGetCount()
    finally:
        pynvml.nvmlShutdown()


def main() -> None:
    environment = dict(os.environ)
    if environment.get("VGPU_SIMULATED"):
        print(f"Simulated GPUs, as VGPU_SIMULATED says: {environment['VGPU_SIMULATED']}")
    elif count := real_gpus():
        print(f"NVML finds {count} GPU{'s' if count > 1 else ''}: the notebooks share them.")
    else:
        environment["VGPU_SIMULATED"] = SIMULATED
        print(f"NVML finds no GPU here: the notebooks share SIMULATED ones (VGPU_SIMULATED={SIMULATED}). Nothing is computed on a GPU.")
    sys.stdout.flush()
    notebooks = sorted((ROOT / "examples").glob("*.ipynb"))
    os.chdir(ROOT)
    # The server's root is the tree: the notebook is opened by its path in it.
    opened = [f"--LabApp.default_url=/lab/tree/{notebooks[0].relative_to(ROOT)}"] if notebooks else []
    # Jupyter refuses to run as root unless told; a container is where that happens.
    root = ["--allow-root"] if os.getuid() == 0 else []
    jupyter = str(Path(sys.executable).with_name("jupyter"))
    os.execve(jupyter, [jupyter, "lab", *opened, *root, *sys.argv[1:]], environment)


if __name__ == "__main__":
    main()
