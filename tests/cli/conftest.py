from __future__ import annotations

import subprocess
import sys

import pytest

from jupyter_vgpu.arbiter import client
from jupyter_vgpu.pool.model import InvalidValue

GIB = 1024**3


def lease(lease_id: str = "lease-1", **changes) -> dict:
    part = {"device": "GPU-1", "memory": 8 * GIB, "memory_guarantee": 0, "memory_used": GIB, "compute": 0.25, "compute_cap": None}
    return {
        "id": lease_id,
        "kernel_id": f"kernel-of-{lease_id}",
        "name": "a.ipynb",
        "path": None,
        "owner": "alice",
        "uid": 1000,
        "class": None,
        "priority": "interactive",
        "state": "active",
        "parts": [part],
        "processes": [],
        "created": 0.0,
        "idle_since": None,
        "message": None,
        "queue_position": None,
        **changes,
    }


def pool(**changes) -> dict:
    device = {
        "uuid": "GPU-1",
        "index": 0,
        "name": "Test GPU",
        "simulated": False,
        "managed_by": None,
        "memory_total": 16 * GIB,
        "memory_pool": 16 * GIB,
        "memory_used": GIB,
        "memory_unmanaged": 0,
        "utilization": 0.5,
        "temperature": None,
        "power": None,
        "unmanaged": [],
    }
    return {
        "arbiter": {"pid": 7, "version": "0", "owner": "alice", "scope": "user", "started": 0.0},
        "time": 0.0,
        "simulated": False,
        "message": None,
        "devices": [device],
        "leases": [lease()],
        "queue": [],
        "policy": {"source": None, "revision": 1, "error": None, "policy": {}},
        **changes,
    }


class FakeClient:
    """ArbiterClient's operations over a snapshot, with one rule of its own: 999TiB is too much."""

    def __init__(self, snapshot: dict) -> None:
        self.snapshot = snapshot
        self.changes: list[tuple] = []

    def pool(self) -> dict:
        return self.snapshot

    def leases(self) -> list[dict]:
        return self.snapshot["leases"]

    def patch_lease(self, lease_id: str, **change) -> dict:
        if change.get("memory") == "999TiB":
            raise InvalidValue(field="memory", value="999TiB", allowed="at most 16 GiB")
        self.changes.append((lease_id, change))
        return next(lease for lease in self.snapshot["leases"] if lease["id"] == lease_id)


@pytest.fixture
def arbiter(monkeypatch) -> FakeClient:
    fake = FakeClient(pool())
    monkeypatch.setattr(client.ArbiterClient, "find", lambda environ: fake)
    monkeypatch.setattr(client.ArbiterClient, "start", lambda environ: fake)
    return fake


@pytest.fixture
def jupyter_vgpu(clean_environment):
    """jupyter_vgpu(*arguments, **environment) -> the finished process."""

    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "jupyter_vgpu", *arguments]
        return subprocess.run(command, env={**clean_environment, **environment}, capture_output=True, text=True, timeout=60)

    return call


@pytest.fixture
def clean_environment(monkeypatch, tmp_path) -> dict:
    """This process's environment without anything of a tenant, and with nothing written into the user's Jupyter directories."""
    import os

    for name in [name for name in os.environ if name.startswith("VGPU_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    return dict(os.environ)
