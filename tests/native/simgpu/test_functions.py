"""The lists of what the simulated driver and NVML export, the libraries built from them, and real headers agree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from jupyter_vgpu.native import locate
from tests.native.shim.test_hooks import LINE, real_header

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "native"
COMPILER = os.environ.get("CXX", "c++")

# The type that a program gets for each name and version.
CUDA_CHECK = """
#include <type_traits>
#include "cudaTypedefs.h"
template <class Real, class Ours> constexpr bool same = std::is_same_v<Real, Ours>;
#define VGPU_SIM_FUNCTION(symbol, name, since, parameters) \\
  static_assert(same<PFN_##name##_v##since, CUresult(*) parameters>, #symbol);
#define VGPU_SIM_STREAM(symbol, suffix, name, since, parameters, arguments) \\
  static_assert(same<PFN_##name##_v##since, CUresult(*) parameters>, #symbol);
#include "functions.def"
"""

NAMES = """
#define VGPU_SIM_FUNCTION(symbol, ...) symbol
#define VGPU_SIM_STREAM(symbol, suffix, ...) symbol symbol##suffix
#include "functions.def"
"""


def exported(library: Path) -> set[str]:
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name}


def dynamic(library: Path, tag: str) -> list[str]:
    with library.open("rb") as file:
        section = next(section for section in ELFFile(file).iter_sections() if isinstance(section, DynamicSection))
        return [getattr(entry, tag.removeprefix("DT_").lower()) for entry in section.iter_tags(tag)]


def preprocessed(tmp_path: Path, source: str, include: Path) -> str:
    file = tmp_path / "names.cpp"
    file.write_text(source)
    command = [COMPILER, "-E", "-P", f"-I{include}", str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_every_function_has_the_type_of_its_name_and_version_in_a_real_header(tmp_path):
    source = tmp_path / "check.cpp"
    source.write_text(CUDA_CHECK)
    includes = [f"-I{real_header('cudaTypedefs.h').parent}", f"-I{NATIVE / 'simgpu' / 'client'}"]
    command = [COMPILER, "-std=c++17", "-fsyntax-only", "-D__CUDA_API_VERSION_INTERNAL", *includes, str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_driver_exports_its_list_and_nothing_else(tmp_path):
    listed = preprocessed(tmp_path, NAMES, NATIVE / "simgpu" / "client").split()
    assert len(listed) == len(set(listed)) > 150
    assert exported(locate.library(locate.SIM_CUDA)) == set(listed)


def test_each_symbol_is_one_of_a_real_drivers(tmp_path):
    real = {name for _, library, name in LINE.findall((NATIVE / "include" / "vgpu" / "hooks.def").read_text()) if library == "CUDA"}
    assert exported(locate.library(locate.SIM_CUDA)) <= real


@pytest.mark.parametrize(("name", "soname"), [(locate.SIM_CUDA, "libcuda.so.1"), (locate.SIM_NVML, "libnvidia-ml.so.1")])
def test_names_of_the_libraries_are_what_loaders_ask_for(name, soname):
    library = locate.library(name)
    assert dynamic(library, "DT_SONAME") == [soname]
    assert not [needed for needed in dynamic(library, "DT_NEEDED") if "stdc++" in needed or "gcc" in needed or "vgpu" in needed]
