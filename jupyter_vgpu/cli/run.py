"""Run a command as a tenant with a lease of its own.

The command takes this process's place (same pid), so signals and exit status are its own. Inside a tenant (a notebook's terminal,
another `run`) it joins the lease that is there, unless --new-lease is given. Without a GPU it is an error to ask for a share of one:
say --simulated, or --best-effort to run without a lease then.

exit status: the command's; 125 no lease, so nothing was run; 126 the command is not executable; 127 it was not found
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn, Optional

from jupyter_vgpu.cli import complain
from jupyter_vgpu.cli.text import number_or_text

NO_LEASE = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127
SIMULATED = "2x16GiB"
TENANT_VARIABLES = ("VGPU_TOKEN", "VGPU_LEASE", "VGPU_SHIM_SOCKET")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "jupyter vgpu run [options] -- COMMAND [ARGUMENT ...]"
    parser.add_argument("--class", dest="lease_class", metavar="CLASS", help="a class of the policy; default: the policy's")
    parser.add_argument("--memory", metavar="SIZE", help="limit of device memory, such as 8GiB")
    parser.add_argument("--compute", metavar="FRACTION", type=number_or_text, help="share of a device's time, 0.01 to 1")
    parser.add_argument("--simulated", nargs="?", const=SIMULATED, metavar="SPEC", help=f"on simulated devices; default {SIMULATED}")
    parser.add_argument(
        "--best-effort",
        action="store_true",
        help="never fail because of the GPU: what the policy does not allow is reduced to what it does, and where there is no lease to "
        "be had the command runs without one; either is said on stderr (kernelspecs use this)",
    )
    parser.add_argument("--new-lease", action="store_true", help="take a lease of its own also inside a tenant")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command and its arguments, behind --")


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        print("jupyter vgpu run: which command? Write it behind --: jupyter vgpu run --memory 8GiB -- python train.py", file=sys.stderr)
        return 2
    executable = shutil.which(command[0])
    if executable is None:
        if os.path.exists(command[0]):
            return complain(f"{command[0]}: not executable", NOT_EXECUTABLE)
        return complain(f"{command[0]}: command not found", NOT_FOUND)
    environ = dict(os.environ)
    if args.simulated is not None:
        environ["VGPU_SIMULATED"] = args.simulated
    if args.new_lease:
        for name in TENANT_VARIABLES:
            environ.pop(name, None)
    if environ.get("VGPU_TOKEN"):
        if any(value is not None for value in (args.lease_class, args.memory, args.compute, args.simulated)):
            complain("joins the lease of the tenant it runs in; the options are for a lease of its own and have no effect here", 0)
        return _exec(executable, command, os.environ)
    from jupyter_vgpu.arbiter.client import ArbiterUnavailable
    from jupyter_vgpu.native.locate import NativeUnavailable
    from jupyter_vgpu.pool.model import InvalidValue

    try:
        environment = leased_environment(args, environ=environ, name=os.path.basename(command[0]))
    except (ArbiterUnavailable, NativeUnavailable, InvalidValue, OSError) as error:
        if not args.best_effort:
            return complain(f"no lease, so nothing was run: {error}", NO_LEASE)
        complain(f"{command[0]} runs without a lease: {error}", 0)
        environment = dict(os.environ)
    return _exec(executable, command, environment)


def leased_environment(args: argparse.Namespace, *, environ: Mapping[str, str], name: str) -> dict[str, str]:
    """A lease as `args` ask for it, held by this process, and the environment of its tenant.

    Raises `InvalidValue` (what was asked is not allowed, unless best effort), `ArbiterUnavailable`, `NativeUnavailable`, `OSError`.
    """
    from jupyter_vgpu.arbiter.client import ArbiterClient, ArbiterUnavailable
    from jupyter_vgpu.devices import choose
    from jupyter_vgpu.native.environment import tenant_environment

    if choose(environ) is None:
        raise ArbiterUnavailable("there is no NVIDIA GPU on this machine; --simulated runs on simulated ones")
    client = ArbiterClient.start(environ)
    # Jupyter servers say by this variable which notebook the kernel is for.
    path: Optional[str] = environ.get("JPY_SESSION_NAME")
    asked = {"lease_class": args.lease_class, "memory": args.memory, "compute": args.compute}
    created = client.create_lease(
        name=os.path.basename(path) if path else name,
        path=path,
        visible_devices=environ.get("CUDA_VISIBLE_DEVICES"),
        strict=not args.best_effort,
        **{key: value for key, value in asked.items() if value is not None},
    )
    if created["lease"]["message"]:
        complain(created["lease"]["message"], 0)
    client.add_process(created["lease"]["id"], os.getpid())
    return tenant_environment(environ, created=created, socket=client.socket, startup=True)


def _exec(executable: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        return _replaced(executable, command, environment)
    except OSError as error:
        return complain(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE)


def _replaced(executable: str, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    os.execve(executable, list(command), dict(environment))
