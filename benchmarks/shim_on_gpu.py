"""What the shim adds on a real GPU: launches, allocations and a small launch-bound training loop, bare and as a tenant in pairs.

    python benchmarks/shim_on_gpu.py [--pairs 10] [--torch]

Every pair runs both variants one after the other, in alternating order; printed are the medians and the median of the pairs' differences.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pynvml

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "examples" / "demo_kernels.ptx"

# About 2 ms of Python an iteration and little work for the GPU: what a launch costs shows here more than anywhere else.
TRAINING = """
import time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(32, 256, device="cuda")
def step():
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for _ in range(50):
    step()
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(1500):
    step()
torch.cuda.synchronize()
print(f"torch training iteration\\t{(time.perf_counter() - start) / 1500 * 1e6:.3f}")
"""


def times(command: list[str], env: dict[str, str]) -> dict[str, float]:
    """Microseconds by name, as the program printed them."""
    output = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name: float(value) for name, value in (line.split("\t") for line in output.splitlines() if "\t" in line)}


def pairs(command: list[str], count: int) -> dict[str, tuple[list[float], list[float]]]:
    """By name: what `count` pairs took, bare and as a tenant."""
    tenant = [sys.executable, "-m", "jupyter_vgpu", "run", "--", *command]
    samples: dict[str, tuple[list[float], list[float]]] = {}
    env = dict(os.environ)
    for pair in range(count):
        for under_us in (False, True) if pair % 2 == 0 else (True, False):
            for name, value in times(tenant if under_us else command, env).items():
                samples.setdefault(name, ([], []))[under_us].append(value)
    return samples


def conditions() -> str:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return f"{pynvml.nvmlDeviceGetName(handle)}, driver {pynvml.nvmlSystemGetDriverVersion()}, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--torch", action="store_true", help="also a small torch training loop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vb") as directory:
        program = f"{directory}/shim_on_gpu"
        include, source = ROOT / "native" / "include", ROOT / "benchmarks" / "shim_on_gpu.c"
        subprocess.run(["cc", "-std=gnu11", "-O2", f"-I{include}", str(source), "-o", program, "-ldl"], check=True)
        samples = pairs([program, str(KERNELS)], options.pairs)
        if options.torch:
            samples |= pairs([sys.executable, "-c", TRAINING], options.pairs)
    print(f"Conditions: {conditions()}; {options.pairs} interleaved pairs")
    print("| us | bare | under us | difference of the pairs |")
    print("|---|---|---|---|")
    for name, (bare, ours) in samples.items():
        difference = statistics.median(b - a for a, b in zip(bare, ours, strict=True))
        print(f"| {name} | {statistics.median(bare):.3f} | {statistics.median(ours):.3f} | {difference:+.3f} |")


if __name__ == "__main__":
    main()
