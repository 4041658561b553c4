from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def simulated(monkeypatch):
    """Two simulated GPUs and an arbiter of this test's own, in a directory that is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="vgpu-"))
    for name in [name for name in os.environ if name.startswith("VGPU_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("VGPU_SIMULATED", "2x16GiB")
    monkeypatch.setenv("VGPU_SOCKET", str(directory / "arbiter.sock"))
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "vgpu")
    yield directory
    shutil.rmtree(directory)
