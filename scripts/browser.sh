#!/usr/bin/env bash
# Chromium for the browser tests, with a font that draws Chinese: Debian's packages where apt is, else Playwright's own build.
set -euo pipefail
cd "$(dirname "$0")/.."
sudo_if_needed() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

if command -v chromium >/dev/null && fc-list 2>/dev/null | grep -qi 'wqy\|noto.*cjk'; then exit 0; fi
if command -v apt-get >/dev/null; then
  sudo_if_needed apt-get update -qq
  sudo_if_needed env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fontconfig fonts-wqy-microhei >/dev/null
else
  .venv/bin/playwright install chromium
fi
