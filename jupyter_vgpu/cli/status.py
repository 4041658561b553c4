"""Show the pool: devices, leases, who waits and why, and the policy in force. Starts the arbiter if none runs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from typing import Any

from jupyter_vgpu.cli.text import percent, table

LEASE_COLUMNS = ("LEASE", "NAME", "OWNER", "STATE", "DEVICE", "MEMORY USED", "COMPUTE", "CLASS")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the whole snapshot (schema Pool of openapi.yaml)")


def run(args: argparse.Namespace) -> int:
    from jupyter_vgpu.arbiter.client import ArbiterClient

    pool = ArbiterClient.start(os.environ).pool()
    print(json.dumps(pool, indent=2) if args.json else describe(pool))
    return 0


def describe(pool: Mapping[str, Any]) -> str:
    """A snapshot (schema Pool of openapi.yaml) for a terminal."""
    from jupyter_vgpu.pool.units import format_size

    sections = [pool["message"]] if pool["message"] else []
    names = {device["uuid"]: str(device["index"]) for device in pool["devices"]}
    if pool["devices"]:
        rows = [
            [
                str(device["index"]),
                device["name"],
                f"{format_size(device['memory_used'])} of {format_size(device['memory_total'])}",
                percent(device["utilization"]),
                f"managed by {device['managed_by']}" if device["managed_by"] else _unmanaged(device),
                device["uuid"],
            ]
            for device in pool["devices"]
        ]
        sections.append(table(["DEVICE", "NAME", "MEMORY USED", "BUSY", "REMARK", "UUID"], rows))
    rows = [row for lease in pool["leases"] for row in lease_rows(lease, names)]
    sections.append(table(LEASE_COLUMNS, rows) if rows else "No leases.")
    sections += [f"{lease['id']}: {lease['message']}" for lease in pool["leases"] if lease["message"]]
    if pool["queue"]:
        rows = [[str(entry["position"]), entry["lease_id"], entry["reason"]] for entry in pool["queue"]]
        sections.append(table(["QUEUE", "LEASE", "REASON"], rows))
    policy = pool["policy"]
    sections.append(f"Policy: {policy['source'] or 'built in (no file)'}, revision {policy['revision']}")
    if policy["error"]:
        sections.append(f"The policy file is not in force, the last good one is: {policy['error']}")
    return "\n\n".join(sections)


def lease_rows(lease: Mapping[str, Any], device_names: Mapping[str, str]) -> list[list[str]]:
    """One row under `LEASE_COLUMNS` for each device of a lease (schema Lease); devices by uuid as a person calls them."""
    from jupyter_vgpu.pool.units import format_size

    return [
        [
            lease["id"],
            lease["name"],
            lease["owner"],
            lease["state"],
            device_names.get(part["device"], part["device"]),
            f"{format_size(part['memory_used'])} of {format_size(part['memory'])}",
            percent(part["compute"]) + (f", at most {percent(part['compute_cap'])}" if part["compute_cap"] is not None else ""),
            lease["class"] or "-",
        ]
        for part in lease["parts"]
    ]


def _unmanaged(device: Mapping[str, Any]) -> str:
    from jupyter_vgpu.pool.units import format_size

    if not device["memory_unmanaged"]:
        return "-"
    pids = ", ".join(str(process["pid"]) for process in device["unmanaged"])
    return f"{format_size(device['memory_unmanaged'])} unmanaged" + (f" (pid {pids})" if pids else "")
