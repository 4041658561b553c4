"""What we add to a kernel's start: from `start_kernel` to the kernel's first answer, stock and under us, in interleaved pairs.

    python benchmarks/kernel_start.py [--pairs 10]

Needs a GPU or VGPU_SIMULATED. The first start under us, which also starts the arbiter, is reported apart.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import time

from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import KernelProvisionerFactory

from jupyter_vgpu.devices import choose


async def start(provisioner: str) -> float:
    """Seconds until a kernel under this provisioner has answered kernel_info."""
    KernelProvisionerFactory.instance().default_provisioner_name = provisioner
    manager = AsyncKernelManager(kernel_name="python3")
    began = time.perf_counter()
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready(timeout=60)
    took = time.perf_counter() - began
    client.stop_channels()
    await manager.shutdown_kernel(now=True)
    return took


async def main(pairs: int) -> None:
    await start("local-provisioner")  # warms the file cache
    first = await start("vgpu")
    stock, ours = [], []
    for pair in range(pairs):
        # Alternating which goes first takes a drift of the machine out of the difference.
        for provisioner in ("local-provisioner", "vgpu") if pair % 2 == 0 else ("vgpu", "local-provisioner"):
            (stock if provisioner == "local-provisioner" else ours).append(await start(provisioner))
    difference = [b - a for a, b in zip(stock, ours, strict=True)]
    print(f"Conditions: {os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}, devices: {choose(os.environ)}")
    print("| kernel start to first answer | median | min | max |")
    print("|---|---|---|---|")
    for name, values in (("stock", stock), ("under us", ours), ("difference of the pairs", difference)):
        print(f"| {name} | {1e3 * statistics.median(values):.0f} ms | {1e3 * min(values):.0f} ms | {1e3 * max(values):.0f} ms |")
    print(f"First start under us, arbiter included: {1e3 * first:.0f} ms ({pairs} pairs otherwise)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    asyncio.run(main(parser.parse_args().pairs))
