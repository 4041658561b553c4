"""A pool of a test's own: two simulated GPUs, an arbiter beside them, and nothing left afterwards."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jupyter_vgpu.arbiter.client import ArbiterClient, ArbiterUnavailable


@contextlib.contextmanager
def own_pool() -> Iterator[dict[str, str]]:
    """VGPU_SOCKET and VGPU_SIMULATED of the pool; at the end its arbiter, if one was started, is ended."""
    directory = Path(tempfile.mkdtemp(prefix="vgpu-"))  # not pytest's tmp_path: sockets have 107 bytes for their path
    variables = {"VGPU_SOCKET": str(directory / "arbiter.sock"), "VGPU_SIMULATED": "2x16GiB"}
    try:
        yield variables
    finally:
        with contextlib.suppress(ArbiterUnavailable):
            pid = ArbiterClient.find(variables).pool()["arbiter"]["pid"]
            descriptor = os.pidfd_open(pid)
            os.kill(pid, signal.SIGTERM)
            _wait_for(descriptor)
        shutil.rmtree(directory)


def _wait_for(descriptor: int) -> None:
    ended, _, _ = select.select([descriptor], [], [], 10)
    os.close(descriptor)
    assert ended, "the arbiter does not end on SIGTERM"
