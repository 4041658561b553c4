"""Installing, starting, uninstalling."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path

import pytest

from jupyter_vgpu.native import locate
from tests.packaging.environments import Environment, Server, copied_tree, wait_for

ROOT = Path(__file__).resolve().parents[2]
LOCATED = "import json; from jupyter_vgpu.native import locate; print(json.dumps([locate.available(), locate.unavailable_reason()]))"
LABEXTENSIONS = """
import json
from jupyter_core.paths import jupyter_path
from jupyterlab_server.config import get_federated_extensions
found = get_federated_extensions(jupyter_path("labextensions"))
print(json.dumps({name: extension["ext_path"] for name, extension in found.items()}))
"""
SIMULATED = "1x1GiB"


def kernel_environment(server: Server, kernel: str) -> dict[str, str]:
    """The environment of a kernel's process, from /proc: what it was started with."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if kernel in (process / "cmdline").read_text():
                return dict(entry.split("=", 1) for entry in (process / "environ").read_text().split("\0") if "=" in entry)
        except OSError:
            continue  # ended meanwhile, or not ours
    raise AssertionError(f"no process of kernel {kernel}\n{server.log.read_text()}")


def assert_manages_kernels(server: Server) -> None:
    # A kernel does not wait long for an arbiter that a busy machine is slow to start.
    wait_for(lambda: server.request("GET", "vgpu/api/pool")["devices"])
    kernel = server.start_kernel()
    [lease] = server.request("GET", f"vgpu/api/leases?kernel_id={kernel}")
    assert kernel_environment(server, kernel)["VGPU_LEASE"] == lease["id"]


def test_an_installed_wheel_finds_its_native_part(environment: Environment, wheel: Path) -> None:
    environment.pip("install", "--no-deps", wheel)
    assert environment.code(LOCATED) == [True, None]
    placed = environment.code("import json; from jupyter_vgpu.native import locate; print(json.dumps(str(locate.library_directory())))")
    assert placed.startswith(str(environment.folder))


def test_an_installed_wheel_enables_the_server_extension_and_provisions_kernels_and_uninstalling_leaves_a_stock_server(
    environment: Environment, wheel: Path
) -> None:
    environment.pip("install", "--no-deps", wheel)
    with environment.server(VGPU_SIMULATED=SIMULATED) as server:
        assert_manages_kernels(server)
    assert environment.code(LABEXTENSIONS)["jupyter-vgpu"].startswith(str(environment.folder))

    environment.pip("uninstall", "--yes", "jupyter-vgpu")
    left = [path for path in environment.folder.rglob("*") if "vgpu" in path.name and path.name != "__pycache__"]
    assert left == []
    # The borrowed dependencies lie beside the editable install's metadata; without its .pth nothing of it can be imported.
    with environment.server(VGPU_SIMULATED=SIMULATED) as server:
        kernel = server.start_kernel()
        assert "LD_PRELOAD" not in kernel_environment(server, kernel)
        assert "jupyter_vgpu" not in json.dumps(server.request("GET", "api/kernels"))


def test_without_a_native_part_kernels_are_left_alone_and_the_reason_is_said(environment: Environment, pure_wheel: Path) -> None:
    environment.pip("install", "--no-deps", pure_wheel)
    available, reason = environment.code(LOCATED)
    assert not available and "no native part" in reason
    with environment.server(VGPU_SIMULATED=SIMULATED) as server:
        kernel = server.start_kernel()
        started_with = kernel_environment(server, kernel)
        assert not {"LD_PRELOAD", "VGPU_TOKEN", "VGPU_LEASE", "PYTHONSTARTUP"} & set(started_with)
        assert "no native part" in server.request("GET", "vgpu/api/pool")["message"]


def test_this_environments_editable_install_finds_its_native_part_in_the_tree() -> None:
    origin = json.loads(importlib.metadata.distribution("jupyter-vgpu").read_text("direct_url.json") or "{}")
    assert origin["dir_info"] == {"editable": True}
    assert locate.library_directory() == ROOT / "jupyter_vgpu" / "native" / "lib"
    assert locate.unavailable_reason() is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pip_install_into_an_empty_environment_gives_a_working_jupyterlab(tmp_path: Path, wheel: Path) -> None:
    empty = Environment(tmp_path / "env", borrow=False)
    empty.pip("install", f"jupyter-vgpu[demo] @ {wheel.as_uri()}")
    with empty.server(application="jupyterlab", VGPU_SIMULATED=SIMULATED) as server:
        page = server.request_text("lab")
        assert re.search(r'"name": ?"jupyter-vgpu"', page), "JupyterLab's page lists the extensions it loads"
        assert_manages_kernels(server)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pip_install_editable_works_in_a_tree_with_nothing_built(tmp_path: Path) -> None:
    tree = copied_tree(tmp_path / "tree")
    empty = Environment(tmp_path / "env", borrow=False)
    empty.pip("install", "--editable", f"{tree}[demo]")
    assert empty.code(LOCATED) == [True, None]
    with empty.server(VGPU_SIMULATED=SIMULATED) as server:
        assert_manages_kernels(server)
