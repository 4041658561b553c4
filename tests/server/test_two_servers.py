"""Two Jupyter servers, each a process of its own, on the same devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.own_pool import own_pool
from tests.device.notebooks import Server
from tests.provisioner.kernels import MEMORY

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30


@pytest.fixture
def servers(tmp_path):
    with own_pool() as variables:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("VGPU_", "LD_", "JUPYTER_", "CUDA_"))}
        environ = {**clean, **variables, "JUPYTER_CONFIG_PATH": str(ROOT / "jupyter-config")}
        running = []
        try:
            for name in ("one", "two"):
                (tmp_path / name).mkdir()
                running.append(Server(tmp_path / name, environ))
            yield running
        finally:
            for server in running:
                server.close()


def test_two_servers_share_one_arbiter_see_each_other_and_change_only_their_own(servers):
    one, two = servers
    kernels = one.start_kernel(), two.start_kernel()
    leases = one.lease(kernels[0]), two.lease(kernels[1])
    pools = one.call("GET", "vgpu/api/pool"), two.call("GET", "vgpu/api/pool")
    assert pools[0]["arbiter"]["pid"] == pools[1]["arbiter"]["pid"]
    for pool in pools:
        assert {lease["id"] for lease in pool["leases"]} == {lease["id"] for lease in leases}
    one.call("PATCH", f"vgpu/api/leases/{leases[0]['id']}", {"memory": "4GiB"})
    assert one.execute(kernels[0], MEMORY).strip() == str(4 * GIB)
    assert two.execute(kernels[1], MEMORY).strip() == str(16 * GIB)
    with pytest.raises(AssertionError, match="403.*no kernel of this Jupyter server"):
        two.call("PATCH", f"vgpu/api/leases/{leases[0]['id']}", {"memory": "5GiB"})
    one.call("DELETE", f"api/kernels/{kernels[0]}")
    assert [lease["id"] for lease in two.call("GET", "vgpu/api/leases")] == [leases[1]["id"]]
