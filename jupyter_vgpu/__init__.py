"""Several notebook kernels share the GPUs of a machine, each with a quota that can change while it runs.

Importing this package imports nothing else of it: provisioner, CLI and Jupyter each load only the room that they need.
"""


def _jupyter_server_extension_points() -> list:
    """Called by jupyter_server when it loads the extensions that its configuration names."""
    from jupyter_vgpu.server.extension import VgpuExtension

    return [{"module": "jupyter_vgpu.server.extension", "app": VgpuExtension}]


def _jupyter_labextension_paths() -> list:
    """Called by `jupyter labextension develop`."""
    return [{"src": "labextension", "dest": "jupyter-vgpu"}]
