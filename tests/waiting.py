"""Waiting for a condition, with a bound: tests do not sleep to be right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], *, within: float = 10.0, what: str = "the condition") -> Any:
    """The condition's first true value. Fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not hold within {within} s"
        time.sleep(0.002)
    return value
