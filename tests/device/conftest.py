"""Fixtures for a machine with a real GPU: one private arbiter, and a report of what was seen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pynvml
import pytest

PROGRAMS = Path(__file__).parent / "programs"
GIB = 1 << 30


def pytest_sessionstart(session):
    """A green run without a GPU would be a lie, so there is none."""
    try:
        pynvml.nvmlInit()
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError as error:
        pytest.exit(f"tests/device needs a real NVIDIA GPU: {error}", returncode=1)
    if "Simulated" in name:
        pytest.exit(f"tests/device needs a real NVIDIA GPU, found {name}", returncode=1)


@pytest.fixture(scope="session")
def report():
    """Lines for docs/benchmarks.md, with the conditions under which they were read."""
    lines: list[str] = []
    yield lines
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    head = f"{pynvml.nvmlDeviceGetName(handle)}, driver {pynvml.nvmlSystemGetDriverVersion()}, {os.cpu_count()} cores"
    text = "\n".join([f"Conditions: {head}", "", *lines]) + "\n"
    path = os.environ.get("VGPU_DEVICE_REPORT")
    if path:
        Path(path).write_text(text)
    print("\n" + text)


@pytest.fixture(scope="session")
def runtime():
    """A short private directory, so that no arbiter of the machine's user is touched (AF_UNIX paths end at 107 bytes)."""
    directory = tempfile.mkdtemp(prefix="vgpu-dev-", dir="/tmp")
    yield Path(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def environ(runtime):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "VGPU_LOG": "1"}
    environment.pop("VGPU_SIMULATED", None)
    return environment


@pytest.fixture
def bare():
    """Runs a program without us and returns the JSON object of its last line."""

    def run(program: str, *arguments: str, env=None) -> dict:
        return _run([sys.executable, str(PROGRAMS / program), *arguments], env=env or dict(os.environ))

    return run


@pytest.fixture
def tenant(environ):
    """Runs a program under `jupyter vgpu run` and returns the JSON object of its last line."""

    def run(program: str, *arguments: str, options: tuple[str, ...] = ()) -> dict:
        command = ["jupyter", "vgpu", "run", *options, "--", sys.executable, str(PROGRAMS / program), *arguments]
        return _run(command, env=environ)

    return run


def _run(command: list[str], *, env: dict[str, str]) -> dict:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])
