"""``jupyter vgpu``: one module a command, each with ``configure(parser)`` and ``run(args) -> exit status``.

Only the module of the command that was given is imported: `run` stands in front of every kernel that a kernelspec starts.

Exit status: 0 done; 1 refused, or found wrong; 2 wrong usage; 3 no arbiter, or no native part on this machine. `run` has its own, see
there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Optional

REFUSED = 1
UNAVAILABLE = 3
INTERRUPTED = 130

COMMANDS = {
    "status": "devices, leases, queue and policy",
    "run": "run a command as a tenant with a share of the GPUs",
    "set": "change a lease while its kernel runs",
    "policy": "check a policy file",
    "kernelspec": "install a kernel that runs as a tenant in every client",
    "doctor": "what works on this machine, and what to do about the rest",
    "arbiter": "run the arbiter in the foreground, for one user or for the whole machine",
}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The console script ``jupyter-vgpu``. `argv` without the program's name. Returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] not in COMMANDS:
        parser = argparse.ArgumentParser(
            prog="jupyter vgpu",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            description="Shares of this machine's GPUs for notebook kernels and commands.\n\ncommands:\n"
            + "\n".join(f"  {name:11} {text}" for name, text in COMMANDS.items()),
            epilog="`jupyter vgpu COMMAND --help` explains a command.",
        )
        parser.add_argument("command", metavar="COMMAND", choices=sorted(COMMANDS))
        parser.parse_args(arguments[:1])
    command = importlib.import_module(f"jupyter_vgpu.cli.{arguments[0]}")
    parser = argparse.ArgumentParser(
        prog=f"jupyter vgpu {arguments[0]}", description=command.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.configure(parser)
    return _guarded(command.run, parser.parse_args(arguments[1:]))


def _guarded(run, args: argparse.Namespace) -> int:
    from jupyter_vgpu.arbiter.client import ArbiterUnavailable
    from jupyter_vgpu.native.locate import NativeUnavailable
    from jupyter_vgpu.pool.model import InvalidValue

    try:
        status = run(args)
        sys.stdout.flush()
        return status
    except InvalidValue as error:
        return complain(error, REFUSED)
    except (ArbiterUnavailable, NativeUnavailable) as error:
        return complain(error, UNAVAILABLE)
    except BrokenPipeError:
        # Whoever read the output (`| head`) has gone; the interpreter must not try to flush to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return complain(error, REFUSED)
    except KeyboardInterrupt:
        return INTERRUPTED


def complain(error: object, status: int) -> int:
    """`error` as one line on stderr; returns `status`."""
    print(f"jupyter vgpu: {error}", file=sys.stderr)
    return status
