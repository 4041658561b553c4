from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jupyter_vgpu.server.metrics import WATCHED_FOR, PoolCollector
from tests.server.fake_client import lease, snapshot


class Monitor:
    snapshot = None


def samples(collector):
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def test_without_an_arbiter_only_that_is_said():
    assert samples(PoolCollector(Monitor())) == {("vgpu_arbiter_up", ()): 0.0}


def test_figures_of_devices_and_leases_in_base_units():
    monitor = Monitor()
    monitor.snapshot = snapshot([lease(), lease("l2", None, "queued")])
    found = samples(PoolCollector(monitor))
    assert found["vgpu_arbiter_up", ()] == 1
    assert found["vgpu_snapshot_timestamp_seconds", ()] == 7
    device = ("device", "GPU-1")
    for kind, value in {"total": 16, "pool": 12, "used": 5, "unmanaged": 1}.items():
        assert found["vgpu_device_memory_bytes", (device, ("kind", kind))] == value
    assert found["vgpu_device_utilization_ratio", (device,)] == 0.25
    assert found["vgpu_device_power_watts", (device,)] == 300
    assert ("vgpu_device_temperature_celsius", (device,)) not in found  # this device does not tell
    for kind, value in {"limit": 8, "guarantee": 2, "used": 4}.items():
        assert found["vgpu_lease_memory_bytes", (device, ("kernel_id", "k1"), ("kind", kind), ("lease", "l1"))] == value
    assert found["vgpu_lease_compute_ratio", (device, ("kernel_id", ""), ("lease", "l2"))] == 0.5
    assert {state: found["vgpu_leases", (("state", state),)] for state in ("starting", "queued", "active", "idle")} == {
        "starting": 0,
        "queued": 1,
        "active": 1,
        "idle": 0,
    }


def test_events_are_counted_by_type():
    collector = PoolCollector(Monitor())
    for kind in ("denied", "denied", "resized"):
        collector.count({"type": kind})
    found = samples(collector)
    assert found["vgpu_events_total", (("type", "denied"),)] == 2
    assert found["vgpu_events_total", (("type", "resized"),)] == 1


def test_registering_is_no_scrape_and_a_scrape_keeps_the_snapshot_fresh_for_a_while():
    now = 100.0
    collector = PoolCollector(Monitor(), clock=lambda: now)
    registry = CollectorRegistry()
    registry.register(collector)
    assert not collector.watched
    generate_latest(registry)
    assert collector.watched
    now += WATCHED_FOR
    assert not collector.watched
