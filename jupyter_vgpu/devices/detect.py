"""Whether there is anything to manage. Asked at every kernel's start, so it looks at a few file names and loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from .simulated import simulated_spec


def choose(environ: Mapping[str, str], *, root: Path = Path("/")) -> Literal["nvidia", "simulated"] | None:
    """Which devices a kernel or command with this environment would use; None: nothing to manage, leave it alone.

    Called by provisioner and CLI before anything else of ours, and by the arbiter at start. Simulated devices only where
    ``VGPU_SIMULATED`` asks for them; raises `InvalidValue` if that cannot be read. `root` is for tests.
    """
    if simulated_spec(environ) is not None:
        return "simulated"
    return "nvidia" if _has_nvidia(root) else None


def _has_nvidia(root: Path) -> bool:
    if (root / "dev/nvidiactl").exists() and any(_numbered(root / "dev")):
        return True
    # The driver makes its device files on first use, by a helper that a container without GPUs lacks, though it sees the host's /proc.
    if (root / "usr/bin/nvidia-modprobe").exists() and any((root / "proc/driver/nvidia/gpus").glob("*")):
        return True
    # In WSL the device file is there for any vendor's GPU; the driver's own library is not.
    return (root / "dev/dxg").exists() and (root / "usr/lib/wsl/lib/libcuda.so.1").exists()


def _numbered(directory: Path) -> list[Path]:
    return [path for path in directory.glob("nvidia[0-9]*") if path.name[len("nvidia") :].isdigit()]
