#!/usr/bin/env bash
# Build .venv from the lock file on a machine that has Python 3.11+ and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
sudo_if_needed() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

python=""
for candidate in python3.12 python3.11 python3; do
  if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))'; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "Tokenfuse needs Python 3.11 or 3.12: apt-get install python3" >&2; exit 2; }

if ! command -v uv >/dev/null && [ ! -x .local/uv/bin/uv ]; then
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    sudo_if_needed apt-get update -qq && sudo_if_needed apt-get install -y -qq python3-venv
  fi
  "$python" -m venv .local/uv
  .local/uv/bin/pip install -q 'uv>=0.9'
fi
uv=$(command -v uv || echo .local/uv/bin/uv)
"$uv" sync --frozen --compile-bytecode --python "$python"
