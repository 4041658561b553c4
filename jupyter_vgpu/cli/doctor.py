"""Say what works on this machine: driver, shim, locks, capabilities, versions. Each line is ok, warn or fail, with what to do.

exit status: 1 if something fails, else 0
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os

ADVICE_INDENT = " " * 6


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a list of objects with name, status, detail and advice")


def run(args: argparse.Namespace) -> int:
    from jupyter_vgpu.cli.checks import all_checks

    checks = all_checks(os.environ)
    if args.json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{check.status:4}  {check.name:{width}}  {check.detail}")
            if check.advice:
                print(f"{ADVICE_INDENT}{'':{width}}  -> {check.advice}")
    return 1 if any(check.status == "fail" for check in checks) else 0
