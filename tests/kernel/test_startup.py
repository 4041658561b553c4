"""startup.py: %vgpu in whatever environment, and no other trace."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time

import pytest

from jupyter_vgpu.native.environment import STARTUP

PROBE = """
import sys as _sys, json as _json
seen = _json.dumps({"argv0": _sys.argv[0], "argc": len(_sys.argv), "file": __file__, "name": __name__, "path0": _sys.path[0],
    "ours_on_path": any(entry.endswith("jupyter_vgpu/kernel") for entry in _sys.path),
    "startup": __import__("os").environ.get("PYTHONSTARTUP"), "helper": __import__("beside").value})
def helper_of_the_user():
    return seen
"""
NAMES = "print(sorted(globals()), __doc__, globals().get('__file__'))"


@pytest.fixture
def users_startup(tmp_path):
    directory = tmp_path / "users"
    directory.mkdir()
    (directory / "beside.py").write_text("value = 'imported from beside the file'\n")
    (directory / "mine.py").write_text(PROBE)
    return directory / "mine.py"


def test_vgpu_works_in_an_environment_without_our_package(start_kernel, bare_python, kernel_environment, arbiter):
    kernel = start_kernel(bare_python, kernel_environment)
    assert kernel.run("import jupyter_vgpu")[0] == "error"
    assert "512 MiB used of 16 GiB" in kernel.text("%vgpu")
    assert arbiter.requests == [("GET", "/vgpu/api/leases/self", None), ("GET", "/vgpu/api/pool", None)]


def test_users_own_startup_sees_what_it_sees_without_us(start_kernel, bare_python, kernel_environment, users_startup):
    stock = start_kernel(bare_python, {**kernel_environment, "PYTHONSTARTUP": str(users_startup)})
    ours = start_kernel(bare_python, {**kernel_environment, "VGPU_PYTHONSTARTUP": str(users_startup)})
    assert json.loads(ours.text("print(helper_of_the_user())")) == json.loads(stock.text("print(helper_of_the_user())"))
    assert ours.text(NAMES) == stock.text(NAMES)
    assert ours.text("import sys; print(sys.argv[1:3:2], sys.path)") == stock.text("import sys; print(sys.argv[1:3:2], sys.path)")


def test_namespace_history_and_children_are_as_without_us(start_kernel, bare_python, kernel_environment):
    without = {name: value for name, value in kernel_environment.items() if name != "PYTHONSTARTUP"}
    stock, ours = start_kernel(bare_python, without), start_kernel(bare_python, kernel_environment)
    assert ours.text(NAMES) == stock.text(NAMES)
    assert ours.text("%who") == stock.text("%who")
    ours.run("%vgpu")
    assert ours.text("import os; print(os.environ.get('PYTHONSTARTUP'), os.environ.get('VGPU_PYTHONSTARTUP'))") == "None None"
    assert ours.text("print(len(In), list(Out))") == "6 []"  # IPython's own empty In[0], and these five cells


def test_error_in_the_users_startup_is_shown_and_the_kernel_goes_on(start_kernel, bare_python, kernel_environment, users_startup):
    users_startup.write_text("before = 1\nraise RuntimeError('of the user')\n")
    kernel = start_kernel(bare_python, {**kernel_environment, "VGPU_PYTHONSTARTUP": str(users_startup)})
    assert kernel.text("print(before)") == "1"
    assert "16 GiB" in kernel.text("%vgpu")


def test_missing_users_startup_is_no_error(start_kernel, bare_python, kernel_environment, tmp_path):
    kernel = start_kernel(bare_python, {**kernel_environment, "VGPU_PYTHONSTARTUP": str(tmp_path / "gone.py")})
    assert "16 GiB" in kernel.text("%vgpu")


def test_ipython_syntax_in_the_users_startup_runs(start_kernel, bare_python, kernel_environment, tmp_path):
    (tmp_path / "mine.ipy").write_text("%precision 3\nfrom_ipy = 1\n")
    kernel = start_kernel(bare_python, {**kernel_environment, "VGPU_PYTHONSTARTUP": str(tmp_path / "mine.ipy")})
    assert kernel.text("print(from_ipy)") == "1"


def test_plain_interactive_python_runs_the_users_startup_and_gets_nothing_else(kernel_environment, users_startup):
    users_startup.write_text("from_startup = 'yes'\n")
    code = "import os, sys; print(from_startup, os.environ['PYTHONSTARTUP'], 'IPython' in sys.modules, sorted(globals()))\n"
    environment = {**kernel_environment, "VGPU_PYTHONSTARTUP": str(users_startup)}
    result = subprocess.run([sys.executable, "-i", "-q"], input=code, env=environment, capture_output=True, text=True, timeout=60)
    assert f"yes {users_startup} False" in result.stdout, result.stderr
    assert "jupyter_vgpu" not in result.stdout


def test_terminal_ipython_has_no_vgpu(kernel_environment, users_startup):
    users_startup.write_text("from_startup = 'yes'\n")
    code = "print(from_startup, get_ipython().find_line_magic('vgpu'))\n"
    environment = {**kernel_environment, "VGPU_PYTHONSTARTUP": str(users_startup)}
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"]
    result = subprocess.run(command, input=code, env=environment, capture_output=True, text=True, timeout=60)
    assert "yes None" in result.stdout, result.stderr


@pytest.mark.parametrize("name", ["startup.py", "magics.py"])
def test_files_are_python_3_8_and_need_only_the_standard_library(name):
    tree = ast.parse((STARTUP.parent / name).read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in imported} <= set(sys.stdlib_module_names) | {"IPython"}


def test_startup_costs_less_than_two_milliseconds():
    shell = sys.modules.get("IPython")
    assert shell is not None, "measured where IPython is loaded, as in a kernel"
    best = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        exec(compile(STARTUP.read_text(), str(STARTUP), "exec"), {})
        best = min(best, time.perf_counter() - started)
    print(f"startup.py: {best * 1e3:.2f} ms (best of 20, Python {sys.version.split()[0]})")
    assert best < 0.002
