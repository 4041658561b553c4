"""The values of openapi.yaml as they travel between arbiter and clients. Memory in bytes, times in seconds since the epoch."""

from __future__ import annotations

from typing import Any, Literal, Optional, TypedDict


class ProcessView(TypedDict):
    pid: int
    name: Optional[str]
    memory_used: int


class DeviceView(TypedDict):
    uuid: str
    index: int
    name: str
    simulated: bool
    managed_by: Optional[str]
    memory_total: int
    memory_pool: int
    memory_used: int
    memory_unmanaged: int
    utilization: Optional[float]
    temperature: Optional[float]
    power: Optional[float]
    unmanaged: list[ProcessView]


class PartView(TypedDict):
    device: str
    memory: int
    memory_guarantee: int
    memory_used: int
    compute: float
    compute_cap: Optional[float]


LeaseView = TypedDict(
    "LeaseView",
    {
        "id": str,
        "kernel_id": Optional[str],
        "name": str,
        "path": Optional[str],
        "owner": str,
        "uid": int,
        "class": Optional[str],
        "priority": Literal["interactive", "batch"],
        "state": Literal["starting", "queued", "active", "idle"],
        "parts": list[PartView],
        "processes": list[ProcessView],
        "created": float,
        "idle_since": Optional[float],
        "message": Optional[str],
        "queue_position": Optional[int],
    },
)


class CreatedLeaseView(TypedDict):
    lease: LeaseView
    token: str
    shim_socket: str


class PolicyView(TypedDict):
    source: Optional[str]
    revision: int
    error: Optional[str]
    policy: dict[str, Any]


class QueueView(TypedDict):
    lease_id: str
    position: int
    reason: str
    since: float


class ArbiterView(TypedDict):
    pid: int
    version: str
    owner: str
    scope: Literal["user", "host"]
    started: float


class PoolView(TypedDict):
    arbiter: ArbiterView
    time: float
    simulated: bool
    message: Optional[str]
    devices: list[DeviceView]
    leases: list[LeaseView]
    queue: list[QueueView]
    policy: PolicyView


class EventView(TypedDict, total=False):
    type: str
    time: float
    lease_id: Optional[str]
    kernel_id: Optional[str]
    message: str
    lease: Optional[LeaseView]
