#!/usr/bin/env bash
# Prints the Chromium that the browser tests use: $VGPU_CHROMIUM, an installed one, or Playwright's. Fails without one: silently
# with 1 if there is none, with 2 and a message if VGPU_CHROMIUM is wrong.
set -euo pipefail

if [ -n "${VGPU_CHROMIUM:-}" ]; then
  [ -x "$VGPU_CHROMIUM" ] || { echo "VGPU_CHROMIUM: '$VGPU_CHROMIUM' is not an executable file" >&2; exit 2; }
  echo "$VGPU_CHROMIUM"
  exit 0
fi
for name in chromium chromium-browser google-chrome-stable google-chrome; do
  path=$(command -v "$name") || continue
  # Ubuntu's chromium-browser without snap is a script that only says so.
  "$path" --version >/dev/null 2>&1 && { echo "$path"; exit 0; }
done
cache=${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}
for path in "$cache"/chromium-*/chrome-linux*/chrome; do
  [ -x "$path" ] && { echo "$path"; exit 0; }
done
exit 1
