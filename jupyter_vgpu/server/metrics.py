"""The pool on Jupyter's /metrics. What the names mean to an operator: docs/metrics.md."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from jupyter_vgpu.arbiter.api import EventView
from jupyter_vgpu.server.monitor import PoolMonitor

LEASE_STATES = ("starting", "queued", "active", "idle")
WATCHED_FOR = 120.0
"""Seconds after a scrape during which the next one is expected, and the snapshot therefore kept fresh."""


class PoolCollector(Collector):
    """Answers a scrape from the monitor's last snapshot, because a scrape cannot wait for the arbiter.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, monitor: PoolMonitor, *, clock: Callable[[], float] = time.monotonic):
        self._monitor = monitor
        self._clock = clock
        self._scraped: float | None = None
        self._events: Counter[str] = Counter()

    @property
    def watched(self) -> bool:
        """Whether somebody scrapes."""
        return self._scraped is not None and self._clock() - self._scraped < WATCHED_FOR

    def count(self, event: EventView) -> None:
        """Called with each event of the arbiter."""
        self._events[event["type"]] += 1

    def describe(self) -> list[Metric]:
        """No names before the first scrape: a registry that asks at registration must not count as one."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client for each scrape."""
        self._scraped = self._clock()
        events = CounterMetricFamily("vgpu_events", "Events of the GPU pool since the server started.", labels=["type"])
        for kind, number in sorted(self._events.items()):
            events.add_metric([kind], number)
        yield events
        snapshot = self._monitor.snapshot
        yield GaugeMetricFamily("vgpu_arbiter_up", "Whether the GPU arbiter answers.", value=float(snapshot is not None))
        if snapshot is None:
            return
        yield GaugeMetricFamily("vgpu_snapshot_timestamp_seconds", "When the figures below were read.", value=snapshot["time"])
        yield from _devices(snapshot["devices"])
        yield from _leases(snapshot["leases"])
        yield GaugeMetricFamily("vgpu_queue_length", "Leases that wait for room.", value=len(snapshot["queue"]))
        policy = snapshot["policy"]
        yield GaugeMetricFamily("vgpu_policy_revision", "Revision of the policy in force.", value=policy["revision"])
        yield GaugeMetricFamily("vgpu_policy_error", "Whether the policy file is not in force.", value=float(policy["error"] is not None))


def _devices(devices: list) -> Iterator[Metric]:
    memory = GaugeMetricFamily("vgpu_device_memory_bytes", "Memory of a device, by kind.", labels=["device", "kind"])
    readings = {
        "utilization": GaugeMetricFamily("vgpu_device_utilization_ratio", "Utilization that the driver reports.", labels=["device"]),
        "temperature": GaugeMetricFamily("vgpu_device_temperature_celsius", "Temperature of a device.", labels=["device"]),
        "power": GaugeMetricFamily("vgpu_device_power_watts", "Power draw of a device.", labels=["device"]),
    }
    managed = GaugeMetricFamily("vgpu_device_managed", "Whether this pool's arbiter holds the device.", labels=["device"])
    for device in devices:
        for kind in ("total", "pool", "used", "unmanaged"):
            memory.add_metric([device["uuid"], kind], device[f"memory_{kind}"])
        for name, family in readings.items():
            if device[name] is not None:
                family.add_metric([device["uuid"]], device[name])
        managed.add_metric([device["uuid"]], float(device["managed_by"] is None))
    yield from (memory, *readings.values(), managed)


def _leases(leases: list) -> Iterator[Metric]:
    part = ["lease", "kernel_id", "device"]
    memory = GaugeMetricFamily("vgpu_lease_memory_bytes", "Device memory of a lease, by kind.", labels=[*part, "kind"])
    compute = GaugeMetricFamily("vgpu_lease_compute_ratio", "Share of the device's time.", labels=part)
    states = GaugeMetricFamily("vgpu_leases", "Leases by state.", labels=["state"])
    for lease in leases:
        for held in lease["parts"]:
            labels = [lease["id"], lease["kernel_id"] or "", held["device"]]
            memory.add_metric([*labels, "limit"], held["memory"])
            memory.add_metric([*labels, "guarantee"], held["memory_guarantee"])
            memory.add_metric([*labels, "used"], held["memory_used"])
            compute.add_metric(labels, held["compute"])
    numbers = Counter(lease["state"] for lease in leases)
    for state in LEASE_STATES:
        states.add_metric([state], numbers[state])
    yield from (memory, compute, states)
