"""Two notebook kernels of a real Jupyter server on one card, with 20 GiB and 40 GiB: both hold, and `%vgpu` resizes one live."""

from __future__ import annotations

import pytest
from notebooks import Server

GIB = 1 << 30

TOTAL = "import torch; print(torch.cuda.mem_get_info()[1])"
ASK = """
held = globals().setdefault("held", [])
try:
    held.append(torch.empty({size} << 30, dtype=torch.uint8, device="cuda"))
    print("granted")
except torch.cuda.OutOfMemoryError:
    print("denied")
"""


@pytest.fixture(scope="module")
def server(runtime, environ):
    server = Server(runtime, environ)
    yield server
    server.close()


def test_two_kernels_hold_their_quotas_and_one_is_resized_while_it_runs(server, report):
    small, large = server.start_kernel(), server.start_kernel()
    for kernel, memory in ((small, "20GiB"), (large, "40GiB")):
        server.call("PATCH", f"vgpu/api/leases/{server.lease(kernel)['id']}", {"memory": memory})
    seen = {kernel: int(server.execute(kernel, TOTAL)) for kernel in (small, large)}
    assert seen == {small: 20 * GIB, large: 40 * GIB}

    assert server.execute(small, ASK.format(size=15)).strip() == "granted"
    assert server.execute(large, ASK.format(size=35)).strip() == "granted"
    assert server.execute(small, ASK.format(size=10)).strip() == "denied"
    assert server.execute(large, ASK.format(size=10)).strip() == "denied"
    used = {kernel: server.lease(kernel)["parts"][0]["memory_used"] for kernel in (small, large)}
    assert 15 * GIB <= used[small] <= 20 * GIB and 35 * GIB <= used[large] <= 40 * GIB

    said = server.execute(small, "%vgpu memory=30GiB")
    assert int(server.execute(small, TOTAL)) == 30 * GIB, said
    assert server.execute(small, ASK.format(size=10)).strip() == "granted"
    assert int(server.execute(large, TOTAL)) == 40 * GIB, "the neighbour is as it was"
    refused = server.execute(small, "%vgpu memory=5GiB")
    assert "5" in refused and int(server.execute(small, TOTAL)) == 30 * GIB, refused
    table = server.execute(small, "%vgpu")
    report.extend(["", "`%vgpu` in the kernel that was resized from 20 to 30 GiB while it held 25 GiB:", "", "```", table.rstrip(), "```"])
    report.extend(["", f"`%vgpu memory=5GiB` there: `{refused.strip()}`"])

    for kernel in (small, large):
        server.call("DELETE", f"api/kernels/{kernel}")
    assert server.call("GET", "vgpu/api/leases") == []


def test_a_notebook_alone_without_a_policy_sees_the_whole_card(server, bare):
    kernel = server.start_kernel()
    alone = bare("torch_quota.py", str(1 << 20))
    assert int(server.execute(kernel, TOTAL)) == alone["total"]
    server.call("DELETE", f"api/kernels/{kernel}")
