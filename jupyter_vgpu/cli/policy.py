"""Check a policy file before it is put in force: `jupyter vgpu policy check FILE`.

Says FILE:LINE, the key, its value and what is allowed; exit status 1 then.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="read FILE as the arbiter would")
    check.add_argument("file", metavar="FILE", type=Path)


def run(args: argparse.Namespace) -> int:
    from jupyter_vgpu.cli import REFUSED, complain
    from jupyter_vgpu.pool.policy_text import PolicyError, load_policy

    try:
        policy = load_policy(args.file.read_text(encoding="utf-8"))
    except PolicyError as error:
        # As compilers write it, so that editors find the place: one line for each error.
        for line in str(error).splitlines():
            print(
                re.sub(r"^(?:line (\d+))?(?:: )?", lambda match: f"{args.file}:{match[1] + ':' if match[1] else ''} ", line),
                file=sys.stderr,
            )
        return REFUSED
    except UnicodeDecodeError as error:
        return complain(f"{args.file}: not UTF-8 at byte {error.start}", REFUSED)
    classes = ", ".join(policy.classes) or "none"
    print(f"{args.file}: valid; classes: {classes}; default class: {policy.default_class or 'none (the whole device)'}")
    return 0
