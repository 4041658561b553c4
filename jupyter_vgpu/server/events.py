"""The pool's events on Jupyter's event bus, where JupyterLab and other extensions hear them. See docs/events.md."""

from __future__ import annotations

from logging import Logger
from pathlib import Path

from jupyter_events import EventLogger

from jupyter_vgpu.arbiter.api import EventView

SCHEMA_DIRECTORY = Path(__file__).parent / "event_schemas"
BASE = "https://events.jupyter.org/jupyter_vgpu"
LEASE, POLICY, DEVICE = f"{BASE}/lease/v1", f"{BASE}/policy/v1", f"{BASE}/device/v1"
SCHEMA_OF = {
    **dict.fromkeys(("created", "attached", "queued", "admitted", "resized", "denied", "active", "idle", "released"), LEASE),
    **dict.fromkeys(("policy_changed", "policy_error"), POLICY),
    "device_changed": DEVICE,
}


class PoolEvents:
    """Emits what the arbiter tells under the schemas of `event_schemas/`, which it registers."""

    def __init__(self, event_logger: EventLogger, *, log: Logger):
        self._event_logger = event_logger
        self._log = log
        for path in sorted(SCHEMA_DIRECTORY.glob("*.yaml")):
            event_logger.register_event_schema(path)

    def emit(self, event: EventView) -> None:
        """Called with each event of the arbiter. One of a type that a newer arbiter knows is left out, with a line in the log."""
        schema_id = SCHEMA_OF.get(event["type"])
        if schema_id is None:
            self._log.debug("jupyter-vgpu: no schema for events of type %r", event["type"])
            return
        self._event_logger.emit(schema_id=schema_id, data=dict(event))
