"""hooks.def, the libraries built from it, and the headers agree."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from tests.native.shim.conftest import INCLUDE, compile_c

LINE = re.compile(r"^VGPU_(HOOK|FORWARD)\((CUDA|NVML), (\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def listed():
    return LINE.findall((INCLUDE / "vgpu" / "hooks.def").read_text())


def exported(library: Path) -> dict[str, object]:
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {s.name: s for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s.name}


def dynamic(library: Path, tag: str) -> list[str]:
    with library.open("rb") as file:
        section = next(s for s in ELFFile(file).iter_sections() if isinstance(s, DynamicSection))
        return [getattr(t, tag.removeprefix("DT_").lower()) for t in section.iter_tags(tag)]


def test_each_name_is_listed_once(listed):
    names = [name for _, _, name in listed]
    assert len(names) == len(set(names)) > 1000


def test_library_exports_the_list_and_nothing_else(built, listed):
    assert set(exported(built.library)) == {name for _, _, name in listed} | {"vgpu_shim_marker"}


def test_names_of_the_library_are_what_loaders_ask_for(built):
    assert dynamic(built.library, "DT_SONAME") == ["libcuda.so.1"]
    assert dynamic(built.nvml_library, "DT_SONAME") == ["libnvidia-ml.so.1"]
    assert "libcuda.so.1" in dynamic(built.nvml_library, "DT_NEEDED")
    assert not any("vgpu" in needed or "stdc++" in needed for needed in dynamic(built.library, "DT_NEEDED"))


def test_nvml_library_has_no_code_of_its_own(built):
    assert not [name for name in exported(built.nvml_library) if name.startswith(("nvml", "cu"))]


def test_no_private_symbol_of_the_c_library_is_used(built):
    for library in (built.library, built.nvml_library):
        with library.open("rb") as file:
            versions = {
                aux.name
                for s in ELFFile(file).iter_sections()
                if isinstance(s, GNUVerNeedSection)
                for _, a in s.iter_versions()
                for aux in a
            }
        assert "GLIBC_PRIVATE" not in versions and all(v.startswith("GLIBC_2.") for v in versions)


def test_nothing_of_the_program_is_taken_over(built):
    """No signals, atexit, umask or exit; no constructors beyond the compiler's own frame_dummy."""
    with built.library.open("rb") as file:
        elf = ELFFile(file)
        imported = {s.name for s in elf.get_section_by_name(".dynsym").iter_symbols() if s["st_shndx"] == "SHN_UNDEF"}
        constructors = elf.get_section_by_name(".init_array").data_size // 8
    assert not imported & {
        "signal",
        "sigaction",
        "atexit",
        "on_exit",
        "umask",
        "exit",
        "_exit",
        "abort",
        "pthread_atfork",
        "__register_atfork",
    }
    assert constructors == 1


def real_header(name: str) -> Path:
    """From VGPU_CUDA_INCLUDE, else from the test dependencies nvidia-cuda-runtime and nvidia-nvml-dev (headers alone are used)."""
    places = [Path(os.environ["VGPU_CUDA_INCLUDE"])] if "VGPU_CUDA_INCLUDE" in os.environ else []
    places += Path(sysconfig.get_paths()["purelib"]).glob("nvidia/cu*/include")
    for place in places:
        if (place / name).is_file():
            return place / name
    pytest.fail(f"no {name}: pip install 'jupyter-vgpu[test]', or set VGPU_CUDA_INCLUDE to a directory that has it")


def prototypes(header: Path, *options: str) -> set[str]:
    command = ["cc", "-E", "-P", "-xc", f"-I{header.parent}", *options, str(header)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\b((?:cu|nvml)[A-Z]\w*)\s*\(", text))


@pytest.mark.parametrize("variant", ["-DVGPU_PLAIN", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", "-D__CUDA_API_VERSION_INTERNAL"])
@pytest.mark.parametrize("header", ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "nvml.h"])
def test_every_function_of_a_real_header_is_listed(listed, header, variant):
    try:
        names = prototypes(real_header(header), variant)
    except subprocess.CalledProcessError as error:
        # These three need a graphics API's own headers; their declarations are then read from the text.
        assert header in ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"), error.stderr
        text = real_header(header).read_text(errors="replace")
        names = set(re.findall(r"^CUresult CUDAAPI (cu\w+)\s*\(", text, re.MULTILINE))
    assert names and names - {name for _, _, name in listed} == set()


@pytest.mark.parametrize("own,header", [("cuda_abi.h", "cuda.h"), ("nvml_abi.h", "nvml.h")])
def test_layouts_and_enumerators_equal_a_real_headers(tmp_path, own, header):
    source = tmp_path / "layout.cpp"
    text = re.sub(r"/\*.*?\*/", "", (INCLUDE / "vgpu" / own).read_text(), flags=re.DOTALL)
    checks = []
    for name in re.findall(r"^    ((?:CU|NVML)[A-Z0-9_a-z]*) = ", text, re.MULTILINE):
        checks.append(f'static_assert((long)own::{name} == (long)::{name}, "{name}");')
    for body, name in re.findall(r"^typedef struct \w* ?\{(.*?)\n\} (\w+);", text, re.DOTALL | re.MULTILINE):
        checks.append(f'static_assert(sizeof(own::{name}) == sizeof(::{name}), "{name}");')
        for member in re.findall(r"^    (?=\S)(?:\} )?[\w ]*?\**(\w+)(?:\[\w+\])*;", body, re.MULTILINE):
            checks.append(f'static_assert(offsetof(own::{name}, {member}) == offsetof(::{name}, {member}), "{name}.{member}");')
    assert len(checks) > 50
    inclusion = f'#include <cstddef>\n#include <cstdint>\n#include "{real_header(header)}"\nnamespace own {{\n#include "vgpu/{own}"\n}}\n'
    source.write_text(inclusion + "\n".join(checks) + "\n")
    command = ["c++", "-std=c++17", "-fsyntax-only", "-Wno-invalid-offsetof", f"-I{INCLUDE}", str(source)]
    subprocess.run(command, check=True)


def test_shared_headers_are_plain_c(tmp_path):
    source = tmp_path / "plain.c"
    source.write_text(
        '#include "vgpu/cuda_abi.h"\n#include "vgpu/nvml_abi.h"\n#include "vgpu/control.h"\n#include "vgpu/protocol.h"\nint unused;\n'
    )
    compile_c(source, tmp_path / "plain.o", "-c", "-pedantic", "-std=c11")
