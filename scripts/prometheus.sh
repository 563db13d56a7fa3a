#!/usr/bin/env bash
# A real Prometheus for the tests: Debian's package, unpacked and not installed, so that no service of it ever starts.
set -euo pipefail
cd "$(dirname "$0")/.."
sudo_if_needed() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

command -v prometheus >/dev/null && exit 0
[ -x .local/prometheus/usr/bin/prometheus ] && exit 0
command -v apt-get >/dev/null || { echo "put the programs prometheus and promtool on the PATH for make test" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fetch() { (cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq prometheus >/dev/null 2>&1); }
fetch || { sudo_if_needed apt-get update -qq && fetch; }
mkdir -p .local/prometheus
dpkg-deb -x "$folder"/prometheus_*.deb .local/prometheus
