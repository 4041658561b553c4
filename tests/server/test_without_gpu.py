from __future__ import annotations

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.delenv("VGPU_SIMULATED", raising=False)
    monkeypatch.setattr("jupyter_vgpu.server.monitor.choose", lambda environ: None)


async def test_the_pool_is_empty_and_says_why(ask):
    status, pool = await ask("GET", "/pool")
    assert status == 200
    assert pool["devices"] == pool["leases"] == [] and pool["arbiter"] is None
    assert "no GPU" in pool["message"]


async def test_there_are_no_leases_and_the_default_policy(ask):
    assert await ask("GET", "/leases") == (200, [])
    status, policy = await ask("GET", "/policy")
    assert status == 200 and policy["source"] is None


async def test_a_lease_is_unavailable_with_the_reason(jp_fetch, ask):
    status, error = await ask("GET", "/leases/none")
    assert status == 503 and "no GPU" in error["error"]["message"]


async def test_vgpu_is_the_default_provisioner(jp_serverapp):
    assert KernelProvisionerFactory.instance().default_provisioner_name == "vgpu"
