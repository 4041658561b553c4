"""What docs/architecture.md says about the rooms holds in the code."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jupyter_vgpu"
PROVISIONER = ROOT / "kernelprovisioner" / "jupyter_vgpu_provisioner"

MAY_IMPORT = {
    "pool": set(),
    "devices": {"pool"},
    "native": {"pool"},
    "arbiter": {"pool", "devices", "native"},
    "server": {"pool", "devices", "native", "arbiter"},
    "cli": {"pool", "devices", "native", "arbiter"},
    "provisioner": {"pool", "devices", "native", "arbiter"},
    "kernel": set(),
}


def files_of(room):
    return sorted((PROVISIONER if room == "provisioner" else PACKAGE / room).rglob("*.py"))


def imported(path, *, top_level=False):
    """The absolute names that `path` imports, also within functions unless `top_level`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = list(path.relative_to(PROVISIONER.parent if path.is_relative_to(PROVISIONER) else ROOT).parts[:-1])
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], node.module or ""]).strip(".") if node.level else node.module
            yield base
            # `from jupyter_vgpu import server` names a room only in what it imports.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def room_of(module):
    """The room that a module is in; None if it is none of ours."""
    parts = module.split(".")
    if parts[0] == "jupyter_vgpu_provisioner":
        return "provisioner"
    return parts[1] if parts[0] == "jupyter_vgpu" and len(parts) > 1 and parts[1] in MAY_IMPORT else None


def test_every_room_is_known():
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"provisioner"}
    assert found == set(MAY_IMPORT)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_run_downward_only(room):
    files = files_of(room)
    assert files, f"no file in {room}"
    for path in files:
        rooms = {room_of(module) for module in imported(path)} - {None, room}
        assert rooms <= MAY_IMPORT[room], f"{path.relative_to(ROOT)} imports {sorted(rooms - MAY_IMPORT[room])}"


def test_kernel_needs_the_standard_library_alone():
    for path in files_of("kernel"):
        for module in imported(path):
            top = module.split(".")[0]
            # IPython is there where these files do anything at all: they look for it and never require it.
            assert top in sys.stdlib_module_names or top in ("IPython", "jupyter_vgpu"), f"{path.name} imports {module}"


def test_kernel_compiles_for_the_oldest_python_that_a_kernel_may_run():
    for path in files_of("kernel"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_package_is_lazy():
    assert list(imported(PACKAGE / "__init__.py", top_level=True)) == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("jupyter_vgpu", ("jupyter_vgpu.pool", "tornado", "pydantic", "jupyter_server")),
        ("jupyter_vgpu.pool.admission", ("jupyter_vgpu.arbiter", "jupyter_vgpu.devices", "jupyter_vgpu.native", "tornado", "cffi")),
        ("jupyter_vgpu.devices", ("pynvml", "jupyter_vgpu.arbiter")),
        ("jupyter_vgpu.arbiter.client", ("tornado", "jupyter_server", "cffi")),
        ("jupyter_vgpu_provisioner", ("jupyter_server", "jupyter_vgpu.server", "jupyter_vgpu.cli", "pynvml", "cffi")),
    ],
)
def test_importing_loads_only_what_is_needed(module, absent):
    code = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


def test_no_file_is_two_rooms():
    long = [path.relative_to(ROOT) for room in MAY_IMPORT for path in files_of(room) if len(path.read_text().splitlines()) > 450]
    assert not long
