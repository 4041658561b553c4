"""torch under a quota: what it sees, what it is denied, and that it works on. argv[1]: bytes to ask for beyond the quota."""

import json
import sys

import torch

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
print(json.dumps(result))
