"""Waiting for a condition, with a bound: tests do not sleep to be right."""

import time


def until(condition, *, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.002)
    return value
