from __future__ import annotations

import pytest

from jupyter_vgpu.server.open_cells import OpenCells


def status(cells, state, msg_id="a", msg_type="execute_request"):
    return cells.observe(parent_header={"msg_type": msg_type, "msg_id": msg_id}, execution_state=state)


def test_cell_is_open_from_busy_to_idle():
    cells = OpenCells()
    assert status(cells, "busy") and len(cells) == 1
    assert status(cells, "idle") and len(cells) == 0


def test_widgets_comm_message_on_a_subshell_closes_no_cell():
    cells = OpenCells()
    status(cells, "busy", "cell")
    assert not status(cells, "busy", "widget", "comm_msg")
    assert not status(cells, "idle", "widget", "comm_msg")
    assert len(cells) == 1


@pytest.mark.parametrize("msg_type", ["kernel_info_request", "comm_msg", "complete_request", "inspect_request", "comm_info_request", None])
def test_reload_reconnect_and_polling_are_no_activity(msg_type):
    cells = OpenCells()
    assert not status(cells, "busy", "x", msg_type) and len(cells) == 0


def test_cells_of_subshells_are_counted_each():
    cells = OpenCells()
    status(cells, "busy", "main")
    status(cells, "busy", "sub")
    status(cells, "idle", "main")
    assert len(cells) == 1


def test_message_seen_twice_is_one_cell():
    cells = OpenCells()
    status(cells, "busy")
    assert not status(cells, "busy") and len(cells) == 1


def test_idle_of_a_cell_that_began_before_we_listened_changes_nothing():
    cells = OpenCells()
    assert not status(cells, "idle") and len(cells) == 0


def test_restart_closes_all():
    cells = OpenCells()
    status(cells, "busy")
    cells.clear()
    assert len(cells) == 0


def test_status_without_a_parent_is_ignored():
    assert not OpenCells().observe(parent_header={}, execution_state="busy")
