from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_vgpu.native import locate
from tests.stack.stack import Stack


@pytest.fixture
def idle_stack() -> Iterator[Stack]:
    """A pool whose arbiter the test starts."""
    directory = Path(tempfile.mkdtemp(prefix="vgpu-s-"))  # tmp_path can be too long for a socket
    stack = Stack(directory)
    try:
        yield stack
    finally:
        stack.close()
        shutil.rmtree(directory)


@pytest.fixture
def stack(idle_stack: Stack) -> Stack:
    """A running pool of two simulated 16 GiB devices without a policy."""
    return idle_stack.start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Not a skip: without the libraries these tests say nothing, and a green run must mean that they ran.
    reason = locate.unavailable_reason({"VGPU_SIMULATED": "2x16GiB"})
    if reason and any(Path(__file__).parent in item.path.parents for item in items):
        raise pytest.UsageError(reason)
