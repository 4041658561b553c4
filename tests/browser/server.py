"""A Jupyter server for the browser tests, below a base_url; `exec python server.py PORT`.

It writes into a directory of its own, which goes when the server ends: notebooks, settings, kernels' history, and the arbiter's files.
`VGPU_TEST_NO_GPU=1` hides the machine's GPUs from it, so that what a machine without any shows can be seen on each.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

CONFIGURATION = Path(__file__).with_name("jupyter_server_config.py")
# Where somebody's own settings would come in.
FOREIGN = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "VGPU_SOCKET", "VGPU_POLICY")


def main(port: str) -> None:
    # Short, because paths of AF_UNIX sockets are; a kernel may still be writing its history when the directory goes.
    with tempfile.TemporaryDirectory(prefix="vgpu-b-", ignore_cleanup_errors=True) as home:
        for name in FOREIGN:
            os.environ.pop(name, None)
        os.environ.update(HOME=home, XDG_RUNTIME_DIR=home, TMPDIR=home, VGPU_TEST_PORT=port)
        tempfile.tempdir = home
        # Imported only here: both read the environment.
        from jupyterlab.labapp import main as jupyter_lab

        if os.environ.get("VGPU_TEST_NO_GPU"):
            from jupyter_vgpu.devices import choose

            choose.__kwdefaults__["root"] = Path(home)
        jupyter_lab([f"--config={CONFIGURATION}"])


if __name__ == "__main__":
    main(sys.argv[1])
