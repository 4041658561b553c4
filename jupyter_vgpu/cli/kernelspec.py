"""Install a kernel that runs as a tenant whatever starts it: VS Code and others start the kernelspec's command themselves and know
nothing of kernel provisioners. Its command is `jupyter vgpu run --best-effort -- ` and the command of the kernel it is based on.

example: jupyter vgpu kernelspec install --class small --display-name "Python (small GPU)" --user
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="write the kernelspec", description=__doc__, formatter_class=parser.formatter_class)
    install.add_argument("--class", dest="lease_class", metavar="CLASS", help="a class of the policy; default: the policy's")
    install.add_argument("--memory", metavar="SIZE", help="limit of device memory, such as 8GiB")
    install.add_argument("--compute", metavar="FRACTION", help="share of a device's time, 0.01 to 1")
    install.add_argument("--from", dest="base", default="python3", metavar="KERNEL", help="the kernel it is based on; default python3")
    install.add_argument("--name", metavar="NAME", help="default: KERNEL-vgpu, or KERNEL-vgpu-CLASS")
    install.add_argument("--display-name", metavar="TEXT", help='default: the base\'s, with "(GPU share)" or "(CLASS GPU share)"')
    where = install.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (default)")
    where.add_argument("--sys-prefix", action="store_true", help="into this Python environment")
    where.add_argument("--prefix", metavar="DIR", help="into DIR/share/jupyter/kernels")


def run(args: argparse.Namespace) -> int:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    from jupyter_vgpu.pool.model import InvalidValue
    from jupyter_vgpu.pool.units import parse_fraction, parse_size

    # A kernel clamps what it cannot have, so a mistyped value would go unseen for long: it is refused here.
    if args.memory is not None:
        parse_size(args.memory, field="--memory")
    compute = None if args.compute is None else parse_fraction(args.compute, field="--compute")
    manager = KernelSpecManager()
    try:
        base = manager.get_kernel_spec(args.base)
    except NoSuchKernel:
        known = ", ".join(sorted(manager.find_kernel_specs())) or "none is installed"
        raise InvalidValue(field="--from", value=args.base, allowed=f"an installed kernel: {known}") from None
    name = args.name or "-".join([args.base, "vgpu", *([args.lease_class] if args.lease_class else [])]).lower()
    # Stricter than jupyter_client, which takes "..", and installing removes what is there.
    if not re.fullmatch(r"[a-z0-9_][a-z0-9._-]*", name, re.IGNORECASE | re.ASCII):
        allowed = "letters, digits, dots, hyphens and underscores, and neither a dot nor a hyphen first"
        raise InvalidValue(field="--name", value=name, allowed=allowed)
    suffix = f"({args.lease_class} GPU share)" if args.lease_class else "(GPU share)"
    asked = {"class": args.lease_class, "memory": args.memory, "compute": compute}
    spec = managed(
        base.to_dict(),
        display_name=args.display_name or f"{base.display_name} {suffix}",
        asked={k: v for k, v in asked.items() if v is not None},
    )
    prefix: Optional[str] = sys.prefix if args.sys_prefix else args.prefix
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / name
        source.mkdir()
        for file in Path(base.resource_dir).glob("logo-*"):
            (source / file.name).write_bytes(file.read_bytes())
        (source / "kernel.json").write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        target = manager.install_kernel_spec(str(source), kernel_name=name, user=prefix is None, prefix=prefix)
    print(f"Installed {name} in {target}")
    return 0


def managed(base: dict[str, Any], *, display_name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The kernel.json of `base` (its own kernel.json) with a lease: `asked` has any of class, memory, compute.

    The metadata says the same to our provisioner, in whose kernels the command finds a lease and joins it.
    """
    options = [f"--{key}={value}" for key, value in asked.items()]
    command = [sys.executable, "-m", "jupyter_vgpu", "run", "--best-effort", *options, "--", *_absolute(base["argv"])]
    metadata = {**base.get("metadata", {}), **({"vgpu": asked} if asked else {})}
    return {**base, "argv": command, "display_name": display_name, "metadata": metadata}


def _absolute(argv: Sequence[str]) -> list[str]:
    # jupyter_client puts its own interpreter for a leading "python"; behind our command it would no longer see it.
    return [sys.executable if argv[0] in ("python", "python3") else argv[0], *argv[1:]]
