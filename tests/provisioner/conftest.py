"""Kernels under the provisioner `vgpu`, by a kernel manager alone: a pool of each test's own, and no kernel left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import pytest_asyncio
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_vgpu.arbiter.client import ArbiterClient
from tests.cli.own_pool import own_pool


@pytest.fixture(autouse=True)
def no_pool(monkeypatch, tmp_path):
    """Nothing of ours in the environment, `vgpu` as the default provisioner, and connection files in the test's directory."""
    for name in [name for name in os.environ if name.startswith(("VGPU_", "LD_", "PYTHONSTARTUP", "JPY_", "CUDA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "vgpu")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    KernelProvisionerFactory.clear_instance()
    yield
    KernelProvisionerFactory.clear_instance()


@pytest.fixture
def pool(no_pool, monkeypatch):
    """Two simulated GPUs; gives a client of their arbiter, which starts with the first kernel."""
    with own_pool() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Path(variables["VGPU_SOCKET"])


@pytest.fixture
def arbiter(pool):
    """The running arbiter's client."""
    return ArbiterClient.start(os.environ)


@pytest_asyncio.fixture
async def manager():
    """A kernel manager as nbclient makes one. Its kernel is shut down at the end, and no lease may be left of it."""
    km = AsyncKernelManager(kernel_name="python3")
    yield km
    if km.has_kernel:
        await km.shutdown_kernel(now=True)
