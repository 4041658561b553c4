"""What ``%vgpu`` does: the kernel's own lease, read and changed over the arbiter's socket.

Loaded by path from ``startup.py`` on first use, so it stands alone: Python 3.8+, standard library, and the IPython that called it.
API contract: ``/leases/self`` and ``/pool`` of openapi.yaml, on the Unix socket ``VGPU_SOCKET`` with the tenant's ``VGPU_TOKEN``.
"""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import socket
from typing import Any, Dict, List, Mapping, Optional, Tuple

from IPython.core.error import UsageError
from IPython.display import display

TIMEOUT = 10.0
"""Seconds that connecting, sending or one read may take: a cell with %vgpu ends, whatever state the arbiter is in."""

NOT_A_TENANT = (
    "This kernel is not managed by jupyter-vgpu: it uses the GPU without a quota, and there is nothing to show or change. "
    "Kernels that JupyterLab starts are managed when the server has jupyter-vgpu and the machine a GPU (`jupyter vgpu doctor` says "
    "what is missing); for VS Code and other clients install a managed kernel with `jupyter vgpu kernelspec install`."
)
_NUMBERS = ("share", "compute", "compute_cap")


class ArbiterError(Exception):
    """The arbiter could not be asked, or refused; the message is for a person."""


class Table:
    """Rows of label and text for a person; plain text in a terminal, a table in a notebook."""

    def __init__(self, rows: List[Tuple[str, str]]) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        width = max(len(label) for label, _ in self.rows)
        return "\n".join("{}  {}".format(label.ljust(width), text) for label, text in self.rows)

    def _repr_html_(self) -> str:
        row = '<tr><th style="text-align:left">{}</th><td style="text-align:left">{}</td></tr>'
        return "<table>{}</table>".format("".join(row.format(html.escape(label), html.escape(text)) for label, text in self.rows))


def vgpu(line: str) -> None:
    """Called by the magic with what stands behind ``%vgpu``. Raises IPython's `UsageError`: shown without a traceback, fails the cell."""
    try:
        change = parse_change(line)
        if not os.environ.get("VGPU_TOKEN") or not os.environ.get("VGPU_SOCKET"):
            if change:
                raise UsageError(NOT_A_TENANT)
            print(NOT_A_TENANT)
            return
        lease = request("PATCH", "/leases/self", change) if change else request("GET", "/leases/self")
        devices = {device["uuid"]: device for device in request("GET", "/pool")["devices"]}
    except (ArbiterError, ValueError) as error:
        raise UsageError(str(error)) from None
    display(describe(lease, devices))


def parse_change(line: str) -> Dict[str, Any]:
    """The LeaseChange of openapi.yaml that `line` asks for; empty for an empty line.

    Only the form is judged here. What a key or a value may be is the arbiter's to say, so that there is one place that knows.
    Raises ValueError.
    """
    words = re.sub(r"\s*=\s*", "=", line).split()
    change: Dict[str, Any] = {}
    key: Optional[str] = None
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            key = name
            if not name or not value:
                raise ValueError("{!r} is not understood; write key=value, such as memory=8GiB".format(word))
            if key in change:
                raise ValueError("{}: given twice".format(key))
            change[key] = value
        elif key is not None and key != "share":
            # A size may be written as it is shown: memory=8 GiB.
            change[key] += " " + word
        elif not change:
            key = "share"
            change[key] = word
        else:
            raise ValueError("{!r} is not understood; write %vgpu 0.5, or key=value such as memory=8GiB compute=0.25".format(word))
    return {name: _plain_value(name, value) for name, value in change.items()}


def _plain_value(key: str, value: str) -> Any:
    if key == "compute_cap" and value.lower() == "none":
        return None
    if key in _NUMBERS:
        try:
            return float(value)
        except ValueError:
            return value
    return value


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def request(method: str, path: str, change: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """What the arbiter answers to `path` (below ``/vgpu/api``). Raises `ArbiterError` with the arbiter's own message when it refuses."""
    connection = _UnixConnection(os.environ["VGPU_SOCKET"])
    headers = {"Authorization": "Bearer " + os.environ["VGPU_TOKEN"], "Content-Type": "application/json"}
    try:
        body = json.dumps(change) if change is not None else None
        connection.request(method, "/vgpu/api" + path, body=body, headers=headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ArbiterError(
            "The arbiter does not answer on {} ({}). The quota of this kernel stays in force; try again in a moment, or run "
            "`jupyter vgpu doctor`.".format(os.environ["VGPU_SOCKET"], error or type(error).__name__)
        ) from None
    finally:
        connection.close()
    if response.status != 200:
        raise ArbiterError(answer["error"]["message"])
    return answer


def describe(lease: Mapping[str, Any], devices: Mapping[str, Mapping[str, Any]]) -> Table:
    """A lease (schema Lease of openapi.yaml) for the person who holds it; `devices` (schema Device) by uuid."""
    rows = []
    for part in lease["parts"]:
        device = devices.get(part["device"])
        name = "{} ({})".format(device["name"], part["device"]) if device else part["device"]
        compute = "{} of the device".format(_percent(part["compute"]))
        if part["compute_cap"] is not None:
            compute += ", never more than {}".format(_percent(part["compute_cap"]))
        memory = "{} used of {}".format(_size(part["memory_used"]), _size(part["memory"]))
        if part["memory_guarantee"]:
            memory += ", {} guaranteed".format(_size(part["memory_guarantee"]))
        rows += [("Device", name), ("Memory", memory), ("Compute", compute)]
    # Whoever reads this runs a cell, and a kernel with a cell is not idle: the server's word of it may still be on its way to the arbiter.
    state = "active" if lease["state"] == "idle" else lease["state"]
    if lease["queue_position"] is not None:
        state += ", position {}".format(lease["queue_position"])
    rows.append(("State", state))
    if lease["class"]:
        rows.append(("Class", lease["class"]))
    rows.append(("Priority", lease["priority"]))
    if lease["message"]:
        rows.append(("Message", lease["message"]))
    rows.append(("Lease", lease["id"]))
    return Table(rows)


def _size(value: int) -> str:
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return "{:.2f}".format(value / 1024**power).rstrip("0").rstrip(".") + " " + unit
    return "{} B".format(value)


def _percent(fraction: float) -> str:
    return "{:g}%".format(round(fraction * 100, 2))
