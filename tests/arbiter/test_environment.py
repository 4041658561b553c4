"""The environment of tenants and arbiters, and the link directories behind it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jupyter_vgpu.arbiter import runtime
from jupyter_vgpu.arbiter.runtime import UNIX_PATH_MAXIMUM, find_runtime
from jupyter_vgpu.native import environment, links, locate
from jupyter_vgpu.pool.model import InvalidValue

CREATED = {"lease": {"id": "abc", "parts": [{"device": "GPU-1"}]}, "token": "t" * 64, "shim_socket": "/run/x/shim.sock"}
SOCKET = Path("/run/x/arbiter.sock")


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """Files that stand for the installed libraries."""
    directory = tmp_path / "lib"
    directory.mkdir()
    for name in locate.FILES:
        (directory / name).write_text(name)
    monkeypatch.setattr(locate, "library_directory", lambda: directory)
    return directory


@pytest.fixture
def environ(directory):
    return {"XDG_RUNTIME_DIR": str(directory), "HOME": str(directory), "PATH": "/bin"}


def test_a_tenants_environment_is_the_users_with_ours_in_front(libraries, environ):
    environ |= {"LD_PRELOAD": "/usr/lib/libjemalloc.so", "LD_LIBRARY_PATH": "/opt/lib", "PYTHONSTARTUP": "/home/me/start.py", "KEPT": "1"}
    result = environment.tenant_environment(environ, created=CREATED, socket=SOCKET, startup=True)
    directories = links.link_directories(environ)
    assert result["LD_PRELOAD"] == f"{directories.shim}/libcuda.so.1:{directories.shim}/libnvidia-ml.so.1:/usr/lib/libjemalloc.so"
    assert result["LD_LIBRARY_PATH"] == f"{directories.shim}:/opt/lib"
    assert (result["PYTHONSTARTUP"], result["VGPU_PYTHONSTARTUP"]) == (str(environment.STARTUP), "/home/me/start.py")
    assert (result["VGPU_SOCKET"], result["VGPU_SHIM_SOCKET"]) == (str(SOCKET), "/run/x/shim.sock")
    assert (result["VGPU_TOKEN"], result["VGPU_LEASE"], result["KEPT"]) == ("t" * 64, "abc", "1")
    assert set(result) == {
        *environ, "VGPU_SOCKET", "VGPU_SHIM_SOCKET", "VGPU_TOKEN", "VGPU_LEASE", "VGPU_PYTHONSTARTUP"
    }  # fmt: skip
    assert "VGPU_TOKEN" not in environ


def test_done_twice_it_stays_the_same(libraries, environ):
    once = environment.tenant_environment(environ, created=CREATED, socket=SOCKET, startup=True)
    assert environment.tenant_environment(once, created=CREATED, socket=SOCKET, startup=True) == once


def test_the_users_choice_of_devices_is_used_up_by_the_lease(libraries, environ):
    environ["CUDA_VISIBLE_DEVICES"] = "1"
    result = environment.tenant_environment(environ, created=CREATED, socket=SOCKET, startup=True)
    assert "CUDA_VISIBLE_DEVICES" not in result, "an index into a lease of one device would find nothing"


def test_a_user_who_wants_no_device_keeps_none(libraries, environ):
    environ["CUDA_VISIBLE_DEVICES"] = "-1"
    created = {**CREATED, "lease": {"id": "abc", "parts": []}}
    result = environment.tenant_environment(environ, created=created, socket=SOCKET, startup=True)
    assert result["CUDA_VISIBLE_DEVICES"] == "-1"


def test_without_a_python_kernel_pythonstartup_is_left_alone(libraries, environ):
    environ["PYTHONSTARTUP"] = "/home/me/start.py"
    result = environment.tenant_environment(environ, created=CREATED, socket=SOCKET, startup=False)
    assert result["PYTHONSTARTUP"] == "/home/me/start.py" and "VGPU_PYTHONSTARTUP" not in result


def test_simulated_devices_stand_behind_the_shim(libraries, environ):
    environ["VGPU_SIMULATED"] = "2x16GiB"
    result = environment.tenant_environment(environ, created=CREATED, socket=SOCKET, startup=False)
    directories = links.link_directories(environ)
    assert result["LD_LIBRARY_PATH"] == f"{directories.shim}:{directories.sim}"
    assert result["VGPU_SIMGPU_SOCKET"] == "/run/x/gpu.sock"


def test_an_arbiter_started_from_within_a_tenant_is_no_tenant(libraries, environ):
    tenant = environment.tenant_environment(environ, created=CREATED, socket=SOCKET, startup=False)
    result = environment.arbiter_environment(tenant, directory=Path("/run/x"))
    assert not {"VGPU_TOKEN", "VGPU_LEASE", "VGPU_SHIM_SOCKET", "LD_PRELOAD"} & set(result)
    assert str(links.link_directories(environ).shim) not in result.get("LD_LIBRARY_PATH", "")
    assert environment.arbiter_environment(result, directory=Path("/run/x")) == result


def test_links_name_the_one_file_and_an_upgrade_makes_new_ones(libraries, environ):
    first = links.link_directories(environ)
    assert os.readlink(first.shim / "libcuda.so.1") == os.readlink(first.shim / "libcuda.so") == str(libraries / locate.SHIM)
    assert os.readlink(first.shim / "libnvidia-ml.so.1") == str(libraries / locate.SHIM_NVML)
    assert os.readlink(first.sim / "libcuda.so.1") == str(libraries / locate.SIM_CUDA)
    assert links.link_directories(environ) == first
    (libraries / locate.SHIM).write_text("a newer shim")
    second = links.link_directories(environ)
    assert second != first and (first.shim / "libcuda.so.1").is_symlink()


def test_links_that_a_cleaner_took_are_made_again(libraries, environ):
    first = links.link_directories(environ)
    (first.shim / "libcuda.so.1").unlink()
    assert links.link_directories(environ) == first
    assert (first.shim / "libcuda.so.1").is_symlink()
    assert [name for name in os.listdir(first.shim.parent.parent) if name.startswith(".new")] == []


def test_many_at_once_make_one_directory(libraries, environ):
    found, start = [], threading.Barrier(8)

    def make() -> None:
        start.wait()
        found.append(links.link_directories(environ))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert len(os.listdir(found[0].shim.parent.parent)) == 1


def test_a_directory_of_somebody_else_is_refused(tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="theirs"):
        links.private_directory(tmp_path / "theirs")


def test_a_symlink_is_no_directory_of_ours(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(PermissionError):
        links.private_directory(tmp_path / "link")


def test_ours_is_made_private(tmp_path):
    (tmp_path / "wide").mkdir(mode=0o755)
    assert links.private_directory(tmp_path / "wide").stat().st_mode & 0o777 == 0o700


def test_missing_libraries_are_named_with_what_to_do(libraries):
    (libraries / locate.SHIM).unlink()
    assert not locate.available()
    assert locate.SHIM in locate.unavailable_reason() and "install" in locate.unavailable_reason()
    with pytest.raises(locate.NativeUnavailable, match=locate.SHIM):
        locate.library(locate.SHIM)


def test_real_devices_do_not_need_the_simulator(libraries, environ):
    for name in locate.SIMULATOR:
        (libraries / name).unlink()
    assert locate.unavailable_reason(environ) is None
    directories = links.link_directories(environ)
    assert os.readlink(directories.shim / "libcuda.so.1") == str(libraries / locate.SHIM)
    assert not directories.sim.exists()
    simulated = {**environ, "VGPU_SIMULATED": "2x16GiB"}
    assert locate.SIMGPU in locate.unavailable_reason(simulated)
    with pytest.raises(locate.NativeUnavailable, match=locate.SIM_CUDA):
        links.link_directories(simulated)


def test_other_systems_are_told_why(libraries, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux only" in locate.unavailable_reason()


def test_where_an_arbiter_lives(environ):
    base = Path(environ["XDG_RUNTIME_DIR"]) / "jupyter-vgpu"
    assert find_runtime(environ).socket == base / "arbiter.sock"
    assert find_runtime({**environ, "VGPU_SIMULATED": "2x16GiB"}).directory == base / "simulated-2x16GiB"
    assert find_runtime({**environ, "VGPU_SOCKET": "/a/b.sock"}).directory == Path("/a")
    odd = find_runtime({**environ, "VGPU_SIMULATED": "../../" + "x" * 300}).directory
    assert odd.parent == base and len(odd.name) < 40
    for path in (base, base / "simulated-2x16GiB"):
        assert path.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def host_directory(directory, monkeypatch):
    monkeypatch.setattr(runtime, "HOST_DIRECTORY", directory / "host")
    return directory / "host"


@pytest.mark.parametrize("simulated", ["", "2x16GiB", "../../" + "x" * 300])
def test_clients_and_the_host_service_meet_once_it_answers(environ, host_directory, simulated):
    environ["VGPU_SIMULATED"] = simulated
    own = runtime.find_runtime(environ)
    host = runtime.host_runtime(environ)
    assert own.socket != host.socket and host.directory.is_relative_to(host_directory)
    before = os.umask(0o077)
    try:
        runtime.make_host_directory(host)
        runtime.make_host_directory(host)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (host_directory, host.directory)} == {0o755}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(host.socket))
        listener.listen()
        assert runtime.find_runtime(environ) == host
        assert runtime.find_runtime({**environ, "VGPU_SIMULATED": "4x1GiB"}) != host, "other devices, another arbiter"
    assert runtime.find_runtime(environ) == own


def test_a_host_directory_of_somebody_else_is_refused(environ, host_directory, monkeypatch):
    host_directory.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="host service"):
        runtime.make_host_directory(runtime.host_runtime(environ))


def test_a_runtime_directory_too_deep_for_a_socket_is_not_used(tmp_path):
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    found = find_runtime({"XDG_RUNTIME_DIR": str(deep)})
    assert found.directory == Path(f"/tmp/jupyter-vgpu-{os.getuid()}")


@pytest.mark.parametrize("value", ["relative.sock", "/" + "x" * UNIX_PATH_MAXIMUM])
def test_an_impossible_socket_is_named(value):
    with pytest.raises(InvalidValue) as problem:
        find_runtime({"VGPU_SOCKET": value})
    assert (problem.value.field, problem.value.value) == ("VGPU_SOCKET", value)


def test_importing_the_client_costs_no_tornado_and_no_cffi():
    code = "import sys, jupyter_vgpu.arbiter.client; print(sorted({'tornado', 'cffi', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
