"""The pages in this process with a client of the test's choice, and in real Chromium against a small local API."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import streamlit as st
from api_server import Api, serving
from sample_answers import Kind, ledger, overview, unit_costs
from sample_fleet import efficiencies, heat_maps
from sample_fleet_checks import fleet_checks
from sample_quality import coverages, qualities
from streamlit.testing.v1 import AppTest

from ui.components import session

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
    "ledger": ledger,
    "heat_map": heat_maps,
    "efficiency": efficiencies,
    "fleet_checks": fleet_checks,
    "coverage": coverages,
    "quality": qualities,
}


@pytest.fixture(autouse=True)
def _no_old_answers() -> Iterator[None]:
    """Streamlit's caches outlive a page and would feed one test's answers to the next."""
    st.cache_data.clear()
    yield
    st.cache_data.clear()
    st.cache_resource.clear()


@pytest.fixture
def open_app(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """``open_app(client, page="unit_cost", query={...})`` -> the signed-in app, run once."""

    def run(
        client: FakeClient, page: str = "overview", query: Mapping[str, str] | None = None, token: str | None = "tf_1_x"
    ) -> AppTest:
        monkeypatch.setattr(session, "get_client", lambda _token: client)
        monkeypatch.setattr(session, "now", lambda: NOW)
        app = AppTest.from_file(str(ROOT / "ui" / "app.py"), default_timeout=30)
        if token:
            app.session_state["token"] = token
        for name, value in (query or {}).items():
            app.query_params[name] = value
        app.run()
        return app if page == "overview" else app.switch_page(f"views/{page}.py").run()

    return run


@pytest.fixture(scope="session")
def local_api() -> Iterator[Api]:
    with serving() as api:
        yield api


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def ui_url(local_api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pages as ``tokenfuse up`` serves them."""
    port = _free_port()
    log = tmp_path_factory.mktemp("ui") / "streamlit.log"
    address = ["--server.port", str(port), "--server.address", "127.0.0.1"]
    words = ["run", str(ROOT / "ui" / "app.py"), *STREAMLIT_FLAGS, *address, "--", "--api-url", local_api.url]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", *words], stdout=out, stderr=out, start_new_session=True, cwd=log.parent
        )
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}/_stcore/health", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url).is_success:
                return
        time.sleep(0.2)
    pytest.fail(f"streamlit did not come up: {log.read_text()[-2000:]}")
