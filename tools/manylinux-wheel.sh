#!/usr/bin/env bash
# Builds the wheel of a source tree for glibc 2.28 and newer and lets auditwheel check and tag it.
# Usage: tools/manylinux-wheel.sh SOURCE OUT, with the packages of the groups `build` and `wheel` on the PATH's Python.
set -euo pipefail

source=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT

CMAKE_TOOLCHAIN_FILE=$source/tools/zig-toolchain.cmake VGPU_ZIG_PYTHON=$(command -v python) \
  python -m build --wheel --no-isolation --outdir "$raw" "$source"
# libcuda.so.1 is the driver's, or the shim itself: never one to put into the wheel.
auditwheel repair --plat manylinux_2_28_x86_64 --only-plat --exclude libcuda.so.1 --wheel-dir "$out" "$raw"/*.whl
