"""How long a person waits for a page: Streamlit over the API over the generated year, in real Chromium, until all is drawn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.figures import Figure, percentile
from bench.http_ingest import free_port

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
PAGES = ("", "unit_cost", "why", "fleet", "heat_map", "data_quality", "settings_tenants")
FLOOR_S = 2.0
READY = """() => {
  const app = document.querySelector('[data-testid="stApp"]');
  return app && app.getAttribute('data-test-script-state') === 'notRunning'
    && document.querySelector('[data-testid="stMain"] h1, [data-testid="stMain"] h2') !== null
    && document.querySelectorAll('[data-testid="stSkeleton"]').length === 0;
}"""
"""Nothing runs, a heading stands, no place is still empty."""


def pages_ready(api_url: str, token: str, folder: Path, repeats: int) -> tuple[Figure, ...]:
    """Seconds until each page is drawn in a new tab, its link opened as a colleague would; the browser's cache is warm.
    None of them where no Chromium is installed."""
    if not CHROMIUM.exists():
        return ()
    from playwright.sync_api import sync_playwright

    with _streamlit(api_url, token, folder) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        figures = []
        for page in PAGES:
            took = [_open(context, f"{url}/{page}") for _ in range(repeats + 1)][1:]
            figures.append(Figure(f"page {page or 'overview'} ready, p95", percentile(took, 0.95), "s", "less", FLOOR_S, FLOOR_S))
        browser.close()
    return tuple(figures)


def _open(context: Any, url: str) -> float:
    page = context.new_page()
    before = time.perf_counter()
    page.goto(url)
    page.wait_for_function(READY, polling=20, timeout=120_000)
    took = time.perf_counter() - before
    if page.get_by_test_id("stException").count():
        raise AssertionError(f"{url}: the page failed")
    page.close()
    return took


@contextmanager
def _streamlit(api_url: str, token: str, folder: Path) -> Iterator[str]:
    port, file = free_port(), folder / "ui-token"
    file.touch(mode=0o600)
    file.write_text(token)
    words = [
        *("--server.port", str(port), "--server.address", "127.0.0.1", "--server.headless", "true"),
        *("--server.fileWatcherType", "none", "--browser.gatherUsageStats", "false"),
    ]
    app = Path(__file__).parent.parent / "ui/app.py"
    ours = ["--api-url", api_url, "--token-file", str(file)]
    with (folder / "ui.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", str(app), *words, "--", *ours],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(app.parent.parent)},
        )
    try:
        _wait(f"http://127.0.0.1:{port}/_stcore/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise AssertionError("streamlit did not come up: see ui.log")
