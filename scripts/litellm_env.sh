#!/usr/bin/env bash
# LiteLLM pins older web libraries than ours, so the proxy that the tests start lives in an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(command -v uv || echo .local/uv/bin/uv)
wanted=$(sha256sum deploy/litellm/requirements.txt | cut -c1-16)
stamp=.local/litellm-venv/.ready-$wanted
[ -f "$stamp" ] && exit 0
"$uv" venv -q --clear --python .venv/bin/python .local/litellm-venv
"$uv" pip install -q --compile-bytecode --python .local/litellm-venv/bin/python -r deploy/litellm/requirements.txt
touch "$stamp"
