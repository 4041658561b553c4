"""A tenant's process to kill: attaches with a Python shim, holds some bytes, says so in one line, and obeys lines on stdin.

allocate BYTES   -> the reply's status
admit            -> the reply's status
reconnect        -> waits for an arbiter to come back, attaches again; the reply's status
used             -> what its own slot says
"""

from __future__ import annotations

import os
import sys
import time

from jupyter_vgpu.native import protocol
from tests.arbiter.shim import Shim


def main() -> None:
    shim = Shim(os.environ["VGPU_SHIM_SOCKET"], os.environ["VGPU_TOKEN"])
    print(shim.attach().status, shim.slot, flush=True)
    for line in sys.stdin:
        verb, *arguments = line.split()
        if verb == "allocate":
            answer = shim.allocate(int(arguments[0])).status
        elif verb == "admit":
            answer = shim.ask(protocol.OP_ADMIT).status
        elif verb == "reconnect":
            answer = reconnect(shim)
        elif verb == "used":
            answer = int(shim.usage().used)
        else:
            raise SystemExit(f"unknown verb {verb}")
        print(answer, flush=True)


def reconnect(shim: Shim) -> int:
    shim.socket.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            shim.connect()
            return shim.attach_again().status
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


if __name__ == "__main__":
    main()
