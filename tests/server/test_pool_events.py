from __future__ import annotations

import io
import json
import logging

import pytest
import yaml
from jupyter_events import EventLogger

from jupyter_vgpu.server.events import SCHEMA_DIRECTORY, SCHEMA_OF, PoolEvents
from tests.arbiter import contract


@pytest.fixture
def bus():
    """Emits an event as the arbiter sends it, and the list of what arrived on the bus."""
    written = io.StringIO()
    events = PoolEvents(EventLogger(handlers=[logging.StreamHandler(written)]), log=logging.getLogger("test"))

    def emit(**event):
        events.emit({"time": 1.0, "lease_id": None, "kernel_id": None, "message": "m", "lease": None, **event})

    return emit, lambda: [json.loads(line) for line in written.getvalue().splitlines()]


def test_every_event_of_the_arbiter_has_a_schema_that_knows_it():
    declared = contract.document()["components"]["schemas"]["Event"]["properties"]["type"]["enum"]
    assert set(SCHEMA_OF) == set(declared)
    for path in SCHEMA_DIRECTORY.glob("*.yaml"):
        schema = yaml.safe_load(path.read_text())
        assert set(schema["properties"]["type"]["enum"]) == {kind for kind, schema_id in SCHEMA_OF.items() if schema_id == schema["$id"]}


@pytest.mark.parametrize("kind", sorted(SCHEMA_OF))
def test_event_passes_its_schema_and_arrives_whole(bus, kind):
    emit, arrived = bus
    lease_id = "l1" if SCHEMA_OF[kind].endswith("lease/v1") else None
    emit(type=kind, lease_id=lease_id)
    (data,) = arrived()
    assert (data["__schema__"], data["type"], data["message"]) == (SCHEMA_OF[kind], kind, "m")


def test_type_of_a_newer_arbiter_is_left_out(bus):
    emit, arrived = bus
    emit(type="teleported")
    assert arrived() == []
