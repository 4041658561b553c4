"""Which cells a kernel is running, from the status messages on its iopub channel. A pure rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OpenCells:
    """The execute_requests that have turned busy and not yet idle, by message id.

    Not the kernel's execution state: that belongs to whichever message came last, and a widget's comm message on a subshell turns it idle
    in mid-cell. A kernel_info request, a comm message or a completion opens nothing, so a reload or a polling widget is no activity.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def observe(self, *, parent_header: Mapping[str, Any], execution_state: str) -> bool:
        """Takes one status message. Returns whether the number of open cells has changed."""
        if parent_header.get("msg_type") != "execute_request" or not isinstance(parent_header.get("msg_id"), str):
            return False
        before = len(self._open)
        if execution_state == "busy":
            self._open.add(parent_header["msg_id"])
        elif execution_state == "idle":
            self._open.discard(parent_header["msg_id"])
        return len(self._open) != before

    def clear(self) -> None:
        """The kernel was restarted or has died: nothing of before runs any more, and no idle message will come."""
        self._open.clear()
