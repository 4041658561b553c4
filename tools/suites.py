#!/usr/bin/env python3
"""Runs the test suites one after another, prints each one's time, and fails if one of them failed.

Tests marked `root` are run by root alone; who is not is told so.

Usage: tools/suites.py [--all] [SUITE ...]

A suite that fails does not stop the ones behind it. `--all` adds what is marked slow. The last line counts the suites.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q"]
# The rules and the edges, each in its own room; the other suites have their own line.
PYTHON_TESTS_ELSEWHERE = ("native", "packaging", "device", "browser")


@dataclass(frozen=True)
class Suite:
    command: list[str]
    cwd: Path = ROOT
    environment: dict[str, str] = field(default_factory=dict)


def suites(*, slow: bool) -> dict[str, Suite]:
    # `ci` is a profile that hypothesis ships: the same examples on every run, no deadline on a busy machine.
    left_out = ["slow"] * (not slow) + ["root"] * (os.geteuid() != 0)
    marked = ["--hypothesis-profile=ci", "-m", " and ".join(f"not {mark}" for mark in left_out)]
    elsewhere = [f"--ignore=tests/{name}" for name in PYTHON_TESTS_ELSEWHERE]
    return {
        "ruff": Suite([sys.executable, "-m", "ruff", "check", "."]),
        "python": Suite([*PYTEST, "tests", *elsewhere, *marked]),
        "native": Suite([*PYTEST, "tests/native", *marked]),
        "typescript": Suite(["jlpm", "test"], cwd=ROOT / "labextension"),
        "packaging": Suite([*PYTEST, "tests/packaging", *marked]),
        "browser": Suite(["jlpm", "test"], cwd=ROOT / "tests" / "browser"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="the slow tests too")
    parser.add_argument("names", nargs="*", metavar="SUITE")
    arguments = parser.parse_args()
    known = suites(slow=arguments.all)
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no suite {unknown[0]!r}; there are: {', '.join(known)}")

    results: list[tuple[str, bool, float]] = []
    for name in arguments.names or known:
        suite = known[name]
        print(f"\n=== {name}: {' '.join(suite.command)}", flush=True)
        start = time.monotonic()
        status = subprocess.run(suite.command, cwd=suite.cwd, env={**os.environ, **suite.environment}, check=False).returncode
        results.append((name, status == 0, time.monotonic() - start))

    if os.geteuid() != 0:
        print("\nNot run, because they need root (as in CI): the tests of the host service between two users (pytest -m root)")
    print("\nsuite         time")
    for name, passed, seconds in results:
        print(f"{name:<11} {seconds:5.0f} s  {'passed' if passed else 'FAILED'}")
    failed = sum(not passed for _, passed, _ in results)
    print(f"suites: {len(results) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
