"""What the lease adds to a kernel's start: from start_kernel to the kernel's first answer, in interleaved pairs with the stock provisioner.

    python benchmarks/kernel_start.py [PAIRS]

Uses the devices that are there, else simulated ones; the arbiter runs already, as under a Jupyter server.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import sys
import time

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_vgpu.arbiter.client import ArbiterClient
from jupyter_vgpu.devices import choose


async def start(provisioner: str) -> tuple[float, float]:
    """Seconds of start_kernel alone, and until the kernel has answered a kernel_info request."""
    KernelProvisionerFactory.instance().default_provisioner_name = provisioner
    manager = AsyncKernelManager(kernel_name="python3")
    began = time.perf_counter()
    await manager.start_kernel()
    launched = time.perf_counter() - began
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        return launched, time.perf_counter() - began
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def main(pairs: int) -> None:
    if choose(os.environ) is None:
        os.environ["VGPU_SIMULATED"] = "2x16GiB"
    ArbiterClient.start(os.environ)
    for provisioner in ("local-provisioner", "vgpu"):
        await start(provisioner)
    times: dict[str, list[tuple[float, float]]] = {"local-provisioner": [], "vgpu": []}
    for _ in range(pairs):
        for provisioner, found in times.items():
            found.append(await start(provisioner))
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {choose(os.environ)} devices, {pairs} pairs")
    for index, what in enumerate(("start_kernel", "until ready")):
        stock, ours = ([sample[index] for sample in times[name]] for name in ("local-provisioner", "vgpu"))
        added = [b - a for a, b in zip(stock, ours, strict=True)]
        print(
            f"{what}: stock {statistics.median(stock) * 1e3:.0f} ms, with a lease {statistics.median(ours) * 1e3:.0f} ms, "
            f"added {statistics.median(added) * 1e3:.0f} ms (median of pairs; {min(added) * 1e3:.0f} to {max(added) * 1e3:.0f})"
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
