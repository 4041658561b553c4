"""What a shared library exports, needs, and which symbol versions it wants."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

LIBRARIES = "jupyter_vgpu/native/lib/"


def libraries(wheel: Path) -> dict[str, ELFFile]:
    """The native files of a wheel by file name."""
    with zipfile.ZipFile(wheel) as archive:
        members = [info.filename for info in archive.infolist() if info.filename.startswith(LIBRARIES) and not info.is_dir()]
        return {Path(name).name: ELFFile(io.BytesIO(archive.read(name))) for name in members}


def exports(elf: ELFFile) -> set[str]:
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    return {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"}


def needed(elf: ELFFile) -> set[str]:
    return {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}


def wanted_versions(elf: ELFFile) -> set[str]:
    """Symbol versions of other libraries, such as GLIBC_2.17."""
    sections = [section for section in elf.iter_sections() if isinstance(section, GNUVerNeedSection)]
    return {version.name for section in sections for _, versions in section.iter_versions() for version in versions}


def glibc(version: str) -> tuple[int, ...]:
    """(2, 17) for GLIBC_2.17; () for any other name."""
    found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
    return tuple(map(int, found.groups())) if found else ()
