"""What the tests of the pages share: the moment they stand at, how Chromium and Streamlit start, a client of one's choice."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sample_answers import Kind, ledger, overview, unit_costs
from sample_compare import comparisons, unpriced
from sample_explain import explanations
from sample_fleet import efficiencies, heat_maps
from sample_fleet_checks import fleet_checks
from sample_quality import coverages, qualities
from sample_reconcile import reconciliations

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 18, 12, 7, 30, tzinfo=UTC)
CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
STREAMLIT_FLAGS = [
    *("--server.headless", "true"),
    *("--server.fileWatcherType", "none"),
    *("--browser.gatherUsageStats", "false"),
    *("--client.toolbarMode", "minimal"),
    *("--theme.light.primaryColor", "#2563eb"),
    *("--theme.dark.primaryColor", "#60a5fa"),
]
Answer = Callable[[str, Mapping[str, str]], dict[str, Any]]


class FakeClient:
    """Answers like the API and remembers what it was asked; ``answer`` may raise instead."""

    def __init__(self, kind: Kind = "data", answer: Answer | None = None) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._answer = answer or (lambda what, params: BY_NAME[what](params, kind, NOW))

    def overview(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("overview", params)

    def unit_cost(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("unit_cost", params)

    def explain(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("explain", params)

    def reconcile(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("reconcile", params)

    def compare(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("compare", params)

    def unpriced(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("unpriced", params)

    def ledger(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("ledger", params)

    def heat_map(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("heat_map", params)

    def efficiency(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("efficiency", params)

    def fleet_checks(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("fleet_checks", params)

    def coverage(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("coverage", params)

    def quality(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._read("quality", params)

    def _read(self, what: str, params: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append((what, dict(params)))
        return self._answer(what, params)


BY_NAME = {
    "overview": overview,
    "unit_cost": unit_costs,
    "explain": explanations,
    "reconcile": reconciliations,
    "compare": comparisons,
    "unpriced": unpriced,
    "ledger": ledger,
    "heat_map": heat_maps,
    "efficiency": efficiencies,
    "fleet_checks": fleet_checks,
    "coverage": coverages,
    "quality": qualities,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url).is_success:
                return
        time.sleep(0.2)
    pytest.fail(f"streamlit did not come up: {log.read_text()[-2000:]}")
