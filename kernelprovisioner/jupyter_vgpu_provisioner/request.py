"""What is asked of the pool for a kernel, from what is known before it starts: its kernelspec, its notebook's file, its environment.

Nothing here decides: the arbiter clamps what the policy does not allow and says so in the lease.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any, Optional

from jupyter_client.kernelspec import KernelSpec

FIELDS = ("class", "memory", "compute", "compute_cap", "share", "priority")
"""What the metadata key `vgpu` of a kernelspec or notebook may ask for (NewLease in openapi.yaml)."""

NOTEBOOK_MAXIMUM = 4 << 20
"""Bytes of the largest notebook file that is read; parsing one of this size takes some 50 ms."""


def asked(metadata: object) -> dict[str, Any]:
    """The fields of `metadata["vgpu"]` that may be asked for. Metadata is anybody's writing: what has another shape asks for nothing."""
    vgpu = metadata.get("vgpu") if isinstance(metadata, Mapping) else None
    if not isinstance(vgpu, Mapping):
        return {}
    return {name: vgpu[name] for name in FIELDS if isinstance(vgpu.get(name), (str, int, float)) and not isinstance(vgpu[name], bool)}


def asked_by_notebook(path: Optional[str]) -> dict[str, Any]:
    """What the notebook file at `path` asks for; nothing where it cannot be read, is too large or is no notebook.

    A fallback for clients other than JupyterLab, which patches the lease from the live document: the file may be older than what the
    user sees, and the name may lead nowhere (shared documents, renamed ones).
    """
    if not path or not os.path.isabs(path) or not path.endswith(".ipynb"):
        return {}
    try:
        # Non-blocking, because a FIFO of that name would otherwise hold the kernel's start.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > NOTEBOOK_MAXIMUM:
                return {}
            notebook = json.loads(file.read(NOTEBOOK_MAXIMUM))
    except (OSError, ValueError, RecursionError):
        return {}
    return asked(notebook.get("metadata")) if isinstance(notebook, dict) else {}


def lease_request(*, kernel_id: str, kernel_spec: KernelSpec, environ: Mapping[str, str]) -> dict[str, Any]:
    """The body of createLease for a kernel that is about to start in `environ`.

    The notebook's wish replaces the kernelspec's as a whole: a share from one beside a size from the other would be nobody's wish.
    """
    path = environ.get("JPY_SESSION_NAME") or None
    return {
        "kernel_id": kernel_id,
        "name": (os.path.basename(path) if path else "") or kernel_spec.display_name or "kernel",
        "path": path,
        "visible_devices": environ.get("CUDA_VISIBLE_DEVICES"),
        **(asked_by_notebook(path) or asked(kernel_spec.metadata)),
    }


def runs_python(kernel_spec: KernelSpec) -> bool:
    """Whether PYTHONSTARTUP means anything to the kernel, in whatever environment its Python is."""
    language = (kernel_spec.language or "").lower()
    return language.startswith("python") or (not language and os.path.basename((kernel_spec.argv or [""])[0]).startswith("python"))
