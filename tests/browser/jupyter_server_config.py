"""A Jupyter server for the browser tests: JupyterLab's own test configuration, below a base_url, with an arbiter of its own."""

import atexit
import os
import shutil
import tempfile

from jupyterlab.galata import configure_jupyter_server

# The arbiter's directory and Jupyter's runtime files; short, because AF_UNIX paths are.
runtime = tempfile.mkdtemp(prefix="vgpu-b-")
atexit.register(shutil.rmtree, runtime, ignore_errors=True)
os.environ["XDG_RUNTIME_DIR"] = runtime
os.environ.pop("VGPU_SOCKET", None)

c = get_config()  # noqa: F821
configure_jupyter_server(c)
c.ServerApp.port = int(os.environ["VGPU_TEST_PORT"])
c.ServerApp.base_url = "/user/alice/"
c.ServerApp.allow_root = True
