#!/usr/bin/env bash
# The FOCUS validator needs Python 3.12, so it lives in an environment of its own. Without a 3.12 its tests are skipped, saying so.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(command -v uv || echo .local/uv/bin/uv)
wanted=$(sha256sum scripts/focus_validator_requirements.txt | cut -c1-16)
stamp=.local/focus-validator-venv/.ready-$wanted
[ -f "$stamp" ] && exit 0
python=""
for candidate in "$(command -v python3.12 || true)" .venv/bin/python "$HOME"/.pyenv/versions/3.12*/bin/python3.12; do
  if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "no Python 3.12 here: the tests that run the FOCUS validator will be skipped" >&2; exit 0; }
"$uv" venv -q --clear --python "$python" .local/focus-validator-venv
"$uv" pip install -q --python .local/focus-validator-venv/bin/python -r scripts/focus_validator_requirements.txt
touch "$stamp"
