#!/usr/bin/env bash
# What `make setup` cannot get from PyPI or npm: Python with venv, a C++ compiler and, when asked for (`--browser`), a Chromium.
# As root on Debian or Ubuntu it installs what is missing; elsewhere it stops with the one command to run.
# Usage: tools/prerequisites.sh PYTHON [--browser]
set -euo pipefail

python=$1
missing=()

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  echo "jupyter-vgpu needs Python 3.10 or newer; '$python' is $("$python" --version 2>&1 || true)." >&2
  echo "Name another one: make PYTHON=python3.12 ..." >&2
  exit 1
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

command -v "${CXX:-c++}" >/dev/null || missing+=(g++)

if [ "${2:-}" = --browser ]; then
  "$(dirname "$0")/browser.sh" >/dev/null || { status=$?; [ $status = 1 ] || exit $status; missing+=(chromium); }
fi

[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] && [ "${missing[*]}" = chromium ]; then
  # Playwright's own build needs no root, where it can be fetched and the libraries that it links are there.
  echo "No Chromium installed here: trying Playwright's"
  (cd "$(dirname "$0")/../tests/browser" && jlpm playwright install chromium) && "$(dirname "$0")/browser.sh" >/dev/null && exit 0
fi

if command -v apt-get >/dev/null; then
  if [ "$(id -u)" = 0 ]; then
    echo "Installing ${missing[*]} with apt-get"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    exit 0
  fi
  install="sudo apt-get install -y ${missing[*]}"
elif command -v dnf >/dev/null; then
  install="sudo dnf install -y ${missing[*]/#g++/gcc-c++}"
  install=${install/python3-venv/python3}
else
  install="(your system's package manager) install ${missing[*]}"
fi
echo "Missing here, and not installable without root: ${missing[*]}. Run this, then make again:" >&2
echo "  $install" >&2
exit 1
