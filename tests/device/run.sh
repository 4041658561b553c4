#!/usr/bin/env bash
# Runs tests/device on a machine that has Python wheels in .whl (the Jupyter stack and this project's own, from `make wheel`) and no network.
# In the project's root; the report goes to $OUT, where that is set.
set -euo pipefail
. .whl/activate
# `pip install --target` puts data files below the target, where Jupyter does not look.
export JUPYTER_PATH=/tmp/site/share/jupyter JUPYTER_CONFIG_PATH=/tmp/site/etc/jupyter
export VGPU_DEVICE_REPORT=${OUT:-.}/report.md PYTHONUNBUFFERED=1
cd tests/device
# The settings in pyproject.toml are for plugins that this machine need not have.
exec python3 -m pytest -c /dev/null -p no:cacheprovider --rootdir . -s "$@"
