"""The simulator's pure parts, built with the address and undefined-behaviour sanitizers."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SIMGPU = ROOT / "native" / "simgpu"


def test_spec_memory_books_and_timeline_hold(tmp_path: Path) -> None:
    program = tmp_path / "parts"
    parts = ("common/spec.cpp", "device/memory.cpp", "device/timeline.cpp")
    sources = [Path(__file__).with_name("parts.cpp"), *(SIMGPU / part for part in parts)]
    compiler = os.environ.get("CXX", "c++")
    flags = ["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", f"-I{SIMGPU}"]
    subprocess.run([compiler, *flags, *map(str, sources), "-o", str(program)], check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
