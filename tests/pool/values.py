"""Values that the tests of pool/ share."""

from __future__ import annotations

from jupyter_vgpu.pool.admission import grant
from jupyter_vgpu.pool.model import Device, Lease, LeaseRequest
from jupyter_vgpu.pool.policy import Policy

GIB = 1024**3
MIB = 1024**2


def device(index: int, *, gib: int = 16, managed_by: str | None = None) -> Device:
    uuid = f"GPU-{index:08x}-0000-4000-8000-{index:012x}"
    return Device(uuid=uuid, index=index, name=f"Simulated GPU {gib} GiB", memory_total=gib * GIB, simulated=True, managed_by=managed_by)


TWO = (device(0), device(1))


NOTHING_ASKED = LeaseRequest()
NO_POLICY = Policy()


def lease(request: LeaseRequest = NOTHING_ASKED, *, id="a", policy: Policy = NO_POLICY, devices=TWO, leases=(), admitted=False) -> Lease:
    given = grant(request, policy=policy, devices=devices, leases=leases)
    return Lease(id=id, grant=given, name=id, uid=1000, owner="alice", created=0.0, admitted=admitted, request=request)
