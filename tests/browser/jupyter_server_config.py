"""Read by the server that server.py starts: JupyterLab's own test configuration, below a base_url."""

import os

from jupyterlab.galata import configure_jupyter_server

c = get_config()  # noqa: F821
configure_jupyter_server(c)
c.ServerApp.port = int(os.environ["VGPU_TEST_PORT"])
c.ServerApp.base_url = "/user/alice/"
c.ServerApp.allow_root = True
