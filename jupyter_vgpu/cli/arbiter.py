"""Run the arbiter in the foreground. Clients start one by themselves, so this is for the host service: one arbiter for all users.

example, as a service of the system: jupyter vgpu arbiter --host
"""

from __future__ import annotations

import argparse
import os
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", action="store_true", help="serve all users of this machine (as root); default: this user alone")


def run(args: argparse.Namespace) -> int:
    from jupyter_vgpu.arbiter.client import ArbiterUnavailable
    from jupyter_vgpu.arbiter.runtime import answers, find_runtime, host_runtime, make_host_directory
    from jupyter_vgpu.native.environment import arbiter_environment

    runtime = host_runtime(os.environ) if args.host else find_runtime(os.environ)
    if args.host:
        make_host_directory(runtime)
    if answers(runtime.socket):
        raise ArbiterUnavailable(f"an arbiter already serves {runtime.socket}; `jupyter vgpu status` shows its pool")
    command = [sys.executable, "-m", "jupyter_vgpu.arbiter", "--socket", str(runtime.socket), *(["--host"] if args.host else [])]
    os.execve(sys.executable, command, arbiter_environment(os.environ, directory=runtime.directory))
