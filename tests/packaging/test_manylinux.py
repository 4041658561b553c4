"""The wheel of `make wheel` loads on glibc 2.28: its tag is true."""

from __future__ import annotations

import ctypes
import io
import re
import stat
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from jupyter_vgpu.native import locate
from tests.packaging.environments import clean_environment, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LIBRARIES = "jupyter_vgpu/native/lib/"
GLIBC = (2, 28)
# What every glibc of that time has as a file of its own; nothing else may be needed, and the driver only by the one that forwards to it.
SYSTEM = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6", "ld-linux-x86-64.so.2"}


@pytest.fixture(scope="module")
def manylinux(tmp_path_factory: pytest.TempPathFactory, unpacked: Path) -> Path:
    """The wheel as the `wheel` rule builds it, from the sdist so that no build product of the tree gets in."""
    out = tmp_path_factory.mktemp("manylinux")
    run("tools/manylinux-wheel.sh", unpacked, out, env=clean_environment())
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def libraries(manylinux: Path) -> dict[str, ELFFile]:
    with zipfile.ZipFile(manylinux) as archive:
        members = [info.filename for info in archive.infolist() if info.filename.startswith(LIBRARIES) and not info.is_dir()]
        return {Path(name).name: ELFFile(io.BytesIO(archive.read(name))) for name in members}


def test_auditwheel_gives_the_tag_and_grafts_nothing(manylinux: Path, libraries: dict[str, ELFFile]) -> None:
    assert "manylinux_2_28_x86_64" in manylinux.name
    assert sorted(libraries) == sorted(locate.FILES)
    with zipfile.ZipFile(manylinux) as archive:
        assert not [name for name in archive.namelist() if ".libs/" in name]
        assert archive.getinfo(LIBRARIES + locate.SIMGPU).external_attr >> 16 & stat.S_IXOTH


def test_no_symbol_is_newer_than_glibc_2_28(libraries: dict[str, ELFFile]) -> None:
    wanted = {}
    for name, elf in libraries.items():
        for section in elf.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for _, versions in section.iter_versions():
                    wanted.update({version.name: name for version in versions})
    assert "GLIBC_2.2.5" in wanted
    assert "GLIBC_PRIVATE" not in wanted
    newer = {version: name for version, name in wanted.items() if _number(version) > GLIBC}
    assert newer == {}


def test_the_libraries_need_only_the_c_library(libraries: dict[str, ELFFile]) -> None:
    for name, elf in libraries.items():
        needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
        assert needed - SYSTEM == ({"libcuda.so.1"} if name == locate.SHIM_NVML else set()), name


def test_the_exports_are_those_of_the_systems_compiler(libraries: dict[str, ELFFile]) -> None:
    for name in (locate.SHIM, locate.SCHEDULER, locate.SIM_CUDA, locate.SIM_NVML):
        with locate.library(name).open("rb") as file:
            assert _exports(libraries[name]) == _exports(ELFFile(file)), name


def test_the_libraries_load_here(manylinux: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(manylinux) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "jupyter_vgpu" / "native" / "lib"
    for name in (locate.SCHEDULER, locate.SHIM, locate.SIM_CUDA, locate.SIM_NVML):
        ctypes.CDLL(str(folder / name))


def _number(version: str) -> tuple[int, ...]:
    found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
    return tuple(map(int, found.groups())) if found else (0,)


def _exports(elf: ELFFile) -> set[str]:
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    return {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"}
