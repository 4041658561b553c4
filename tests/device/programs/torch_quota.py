"""torch under a quota: what it sees, what it is denied, and that it works on. argv[1]: bytes to ask for beyond the quota."""

import json
import os
import subprocess
import sys

import torch

GIB = 1 << 30


def nvidia_smi(*query: str) -> list[list[int]]:
    """What nvidia-smi, a child of this process and so of the same tenant, prints: rows of numbers, memory in MiB."""
    output = subprocess.run(["nvidia-smi", *query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True).stdout
    return [[int(value) for value in line.split(",")] for line in output.strip().splitlines()]


beyond = int(sys.argv[1])
free, total = torch.cuda.mem_get_info()
result = {"total": total, "free": free, "properties_total": torch.cuda.get_device_properties(0).total_memory}
try:
    torch.empty(beyond, dtype=torch.uint8, device="cuda")
    result["denied"] = None
except torch.cuda.OutOfMemoryError as error:
    result["denied"] = type(error).__name__
generator = torch.Generator().manual_seed(7)
a = torch.randn(1024, 1024, generator=generator)
b = torch.randn(1024, 1024, generator=generator)
product = (a.cuda() @ b.cuda()).cpu().double()
exact = a.double() @ b.double()
result["relative_error"] = float((product - exact).norm() / exact.norm())
model = torch.nn.Linear(256, 256).cuda()
model(torch.randn(8, 256, device="cuda")).square().mean().backward()
result["gradient_finite"] = bool(torch.isfinite(model.weight.grad).all())
kept = torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")
free, total = torch.cuda.mem_get_info()
result["holding"] = {"cuda_used": total - free, "device": nvidia_smi("--query-gpu=memory.total,memory.used")}
result["holding"]["processes"] = nvidia_smi("--query-compute-apps=pid,used_memory")
result["pid"] = os.getpid()
print(json.dumps(result))
