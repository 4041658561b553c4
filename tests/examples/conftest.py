from __future__ import annotations

import os
from pathlib import Path

import pytest
from jupyter_client.provisioning import KernelProvisionerFactory

from tests.cli.own_pool import own_pool


@pytest.fixture
def simulated(monkeypatch):
    """Puts this process, and so the kernels that it starts, on a pool of this test's own; returns the pool's directory."""
    for name in [name for name in os.environ if name.startswith("VGPU_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "vgpu")
    # Here a kernel without a lease would be the failure, however busy the machine.
    monkeypatch.setattr("jupyter_vgpu_provisioner.local.VgpuProvisioner.lease_timeout", 60.0)
    # It reads JUPYTER_DEFAULT_PROVISIONER_NAME once, and an earlier test may have made it.
    KernelProvisionerFactory.clear_instance()
    with own_pool() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Path(variables["VGPU_SOCKET"]).parent
    KernelProvisionerFactory.clear_instance()
