"""Change a lease while its kernel runs. All or nothing: a refusal changes nothing and says what is allowed.

example: jupyter vgpu set 3f2a memory=8GiB compute=0.25

keys: memory, compute, compute_cap (`none` lifts it), share (memory and compute as one fraction of a device), class, priority, device
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_vgpu.cli.status import LEASE_COLUMNS, lease_rows
from jupyter_vgpu.cli.text import number_or_text, table

NUMBERS = ("share", "compute", "compute_cap")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the lease's or kernel's id as `status` shows it, or its beginning; self inside a tenant")
    parser.add_argument("change", nargs="+", metavar="KEY=VALUE")


def run(args: argparse.Namespace) -> int:
    from jupyter_vgpu.arbiter.client import ArbiterClient

    change = parse_change(args.change)
    client = ArbiterClient.find(os.environ)
    lease_id = args.id if args.id == "self" else find_lease(client.leases(), args.id)
    lease = client.patch_lease(lease_id, **change)
    print(table(LEASE_COLUMNS, lease_rows(lease, {})))
    if lease["message"]:
        print(f"\n{lease['message']}")
    return 0


def parse_change(words: Sequence[str]) -> dict[str, Any]:
    """The LeaseChange of openapi.yaml that KEY=VALUE words ask for. What keys and values may be is the arbiter's to say."""
    from jupyter_vgpu.pool.model import InvalidValue

    change: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise InvalidValue(field="change", value=word, allowed="KEY=VALUE, such as memory=8GiB")
        if key in change:
            raise InvalidValue(field=key, value=value, allowed="one value; it was given twice")
        if key == "compute_cap" and value.lower() == "none":
            change[key] = None
        else:
            change[key] = number_or_text(value) if key in NUMBERS else value
    return change


def find_lease(leases: Sequence[Mapping[str, Any]], wanted: str) -> str:
    """The id of the one lease whose id or kernel id is, or begins with, `wanted`. Raises `InvalidValue` for none and for several."""
    from jupyter_vgpu.pool.model import InvalidValue

    names = {lease["id"]: [lease["id"], lease["kernel_id"] or lease["id"]] for lease in leases}
    found = [lease_id for lease_id, ids in names.items() if wanted in ids]
    found = found or [lease_id for lease_id, ids in names.items() if any(name.startswith(wanted) for name in ids)]
    if len(found) != 1:
        allowed = "one of " + ", ".join(sorted(found or names)) if names else "nothing: there are no leases"
        raise InvalidValue(field="ID", value=wanted, allowed=allowed, code="not_found")
    return found[0]
