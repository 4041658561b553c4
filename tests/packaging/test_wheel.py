"""What is in the distributions."""

from __future__ import annotations

import json
import re
import stat
import tarfile
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from jupyter_vgpu.native import locate
from tests.packaging.elf import exports, libraries

ROOT = Path(__file__).resolve().parents[2]
LABEXTENSION = "data/share/jupyter/labextensions/jupyter-vgpu"


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_serves_every_python_3_on_this_platform(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")


def test_each_native_file_is_in_the_wheel_once_and_under_no_other_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        contents = {info.filename: archive.read(info) for info in archive.infolist()}
    elf = [name for name, content in contents.items() if content.startswith(b"\x7fELF")]
    assert sorted(elf) == sorted(f"jupyter_vgpu/native/lib/{file}" for file in locate.FILES)
    assert max(Counter(contents[name] for name in elf).values()) == 1, "two copies of the shim would be two shims"


def test_the_libraries_export_the_drivers_names_and_ours_but_no_cplusplus_runtime(wheel: Path) -> None:
    for name, elf in libraries(wheel).items():
        if name != locate.SIMGPU:
            assert [symbol for symbol in exports(elf) if not symbol.startswith(("cu", "nvml", "vgpu_"))] == [], name


def test_the_simulated_device_process_is_executable(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        mode = archive.getinfo(f"jupyter_vgpu/native/lib/{locate.SIMGPU}").external_attr >> 16
    assert mode & stat.S_IXUSR and mode & stat.S_IXOTH


def test_the_wheel_carries_the_headers_that_python_reads(wheel: Path) -> None:
    sources = (ROOT / "jupyter_vgpu" / "native").glob("*.py")
    read = {name for source in sources for name in re.findall(r'declarations\("(\w+\.h)"\)', source.read_text())}
    assert read and {f"jupyter_vgpu/native/include/vgpu/{name}" for name in read} <= set(names(wheel))


def test_the_wheel_carries_the_built_labextension_once(wheel: Path) -> None:
    built = [name for name in names(wheel) if "labextension" in name]
    assert built and all(f"/{LABEXTENSION}/" in name for name in built)
    with zipfile.ZipFile(wheel) as archive:
        package = json.loads(archive.read(next(name for name in built if name.endswith("/package.json") and "/schemas/" not in name)))
        entry = package["jupyterlab"]["_build"]["load"]
        version = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))).decode()
    assert any(name.endswith(f"{LABEXTENSION}/{entry}") for name in built)
    assert f"\nVersion: {package['version']}\n" in version
    assert any(name.endswith(f"{LABEXTENSION}/install.json") for name in built), "pip uninstall is what JupyterLab tells the user"


def test_the_wheel_enables_the_server_extension(wheel: Path) -> None:
    path = next(name for name in names(wheel) if name.endswith("data/etc/jupyter/jupyter_server_config.d/jupyter_vgpu.json"))
    with zipfile.ZipFile(wheel) as archive:
        assert json.loads(archive.read(path)) == {"ServerApp": {"jpserver_extensions": {"jupyter_vgpu": True}}}


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    tops = {PurePosixPath(name).parts[0] for name in names(wheel)}
    assert {top for top in tops if not top.startswith("jupyter_vgpu-")} == {"jupyter_vgpu", "jupyter_vgpu_provisioner"}
    assert not [name for name in names(wheel) if "__pycache__" in name or name.endswith((".cpp", ".ts", ".tsx"))]


@pytest.mark.parametrize("name", ["openapi.yaml", "policy.schema.json", "kernel/startup.py"])
def test_the_wheel_carries_the_data_that_is_read_at_run_time(wheel: Path, name: str) -> None:
    assert f"jupyter_vgpu/{name}" in names(wheel)


def test_the_pure_wheel_installs_anywhere_and_has_no_native_part(pure_wheel: Path, wheel: Path) -> None:
    assert pure_wheel.name.endswith("-py3-none-any.whl")

    def without_native(path: Path) -> set[str]:
        return {name for name in names(path) if not name.startswith(("jupyter_vgpu/native/lib/", "jupyter_vgpu/native/include/"))}

    assert set(names(pure_wheel)) == without_native(wheel)


def test_the_sdist_carries_sources_and_the_built_labextension_but_no_other_build_product(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        files = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}
    assert {"CMakeLists.txt", "hatch_build.py", "LICENSE", "native/include/vgpu/control.h", "labextension/package.json"} <= files
    assert "jupyter_vgpu/labextension/package.json" in files
    products = ("node_modules/", ".so", "/native/lib/", ".venv", "__pycache__", "labextension/lib/", "build/")
    assert not [name for name in files if any(product in name for product in products)]
