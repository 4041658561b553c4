"""The wheel of `make wheel` loads on glibc 2.28: its tag is true."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from jupyter_vgpu.native import locate
from tests.packaging.elf import LIBRARIES, exports, glibc, libraries, needed, wanted_versions
from tests.packaging.environments import clean_environment, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# What every glibc of that time has as a file of its own; nothing else may be needed, and the driver only by the one that forwards to it.
SYSTEM = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6", "ld-linux-x86-64.so.2"}


@pytest.fixture(scope="module")
def manylinux(tmp_path_factory: pytest.TempPathFactory, unpacked: Path) -> Path:
    """Built from the sdist, so that nothing which lies in the tree by accident gets in."""
    out = tmp_path_factory.mktemp("manylinux")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run("tools/manylinux-wheel.sh", unpacked, out, env=clean_environment(PATH=path))
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def native(manylinux: Path) -> dict[str, ELFFile]:
    return libraries(manylinux)


def test_auditwheel_gives_the_tag_and_grafts_nothing(manylinux: Path, native: dict[str, ELFFile]) -> None:
    assert manylinux.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    assert sorted(native) == sorted(locate.FILES)
    with zipfile.ZipFile(manylinux) as archive:
        assert not [name for name in archive.namelist() if ".libs/" in name]
        assert archive.getinfo(LIBRARIES + locate.SIMGPU).external_attr >> 16 & stat.S_IXOTH


def test_no_symbol_is_newer_than_glibc_2_28_and_none_is_private(native: dict[str, ELFFile]) -> None:
    wanted = {version for elf in native.values() for version in wanted_versions(elf)}
    assert "GLIBC_2.2.5" in wanted
    assert "GLIBC_PRIVATE" not in wanted
    assert {version for version in wanted if glibc(version) > (2, 28)} == set()


def test_the_libraries_need_only_the_c_library(native: dict[str, ELFFile]) -> None:
    for name, elf in native.items():
        assert needed(elf) - SYSTEM == ({"libcuda.so.1"} if name == locate.SHIM_NVML else set()), name


def test_both_compilers_export_the_same(native: dict[str, ELFFile], wheel: Path) -> None:
    system = libraries(wheel)
    for name in (locate.SHIM, locate.SCHEDULER, locate.SIM_CUDA, locate.SIM_NVML):
        assert exports(native[name]) == exports(system[name]), name


def test_the_libraries_load_here(manylinux: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(manylinux) as archive:
        archive.extractall(tmp_path)
    for name in (locate.SCHEDULER, locate.SHIM, locate.SIM_CUDA, locate.SIM_NVML):
        ctypes.CDLL(str(tmp_path / LIBRARIES / name))
