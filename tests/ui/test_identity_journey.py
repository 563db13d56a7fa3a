"""A FinOps analyst changes the identity rules in real Chromium, on the real API with its database and archive.

Screenshots are left in pytest's folder of the run (``--basetemp`` to choose it).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvicorn
from pages_world import CHROMIUM, CHROMIUM_FLAGS, ROOT, STREAMLIT_FLAGS, free_port, wait_until_healthy
from playwright.sync_api import Page, expect, sync_playwright
from sqlalchemy import Engine, insert

from api.app import create_app
from api.settings import ApiSettings
from core.identity import in_force
from core.identity_state import Alias
from core.ports import LogBatch
from core.tokens import TokenCounts
from core.usage import Deployment, TenantPath, UsageRecord
from eventlog.archive import archive_segments
from eventlog.manifest import epochs, segments
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.usage.rows import prepare
from models.access_repo import create_token
from models.identity_repo import put_aliases, rule_versions
from models.partitions import ensure_months
from models.tables import UsageDayRow, UsageHourRow

pytestmark = [pytest.mark.browser, pytest.mark.db]
WAIT_MS = 90_000
NOW = datetime.now(UTC)
TEAMS = ("search", "ads", "搜索推荐")


def record(number: int) -> UsageRecord:
    at = NOW - timedelta(hours=3, seconds=number)
    tenant = TenantPath("acme", TEAMS[number % 3], "", f"user-{number % 5}", "key-1")
    tags = ["app:rag"] if number % 2 else []
    return UsageRecord(
        f"r{number}",
        at,
        at,
        Deployment("bj-1", "prod", "m"),
        tenant,
        TokenCounts(100, output=10),
        raw={"identity": {"tags": tags}},
    )


@pytest.fixture
def filled(db: Engine, tmp_path: Path) -> Path:
    """Ninety archived requests of three teams, in the archive and in the rollups of days and hours."""
    rows = [record(number) for number in range(90)]
    log = SpoolLog(tmp_path / "log", SpoolSettings(reserve_bytes=0, reserve_percent=0), lambda: datetime.now(UTC))
    ready = [prepare(row) for row in rows]
    log.append("usage", LogBatch([row.line for row in ready], [row.record for row in ready]))
    log.close()
    for epoch in epochs(tmp_path / "log", "usage"):
        archive_segments(tmp_path, "usage", epoch, [one.segment for one in segments(tmp_path / "log", "usage", epoch)])
    key = {"cluster": "bj-1", "namespace": "prod", "model_id": "m", "org": "acme", "project": "", "user_id": "",
           "key_id": "key-1", "service_tier": "P1", "status": "ok", "usage_source": "exact", "workload_class": 0,
           "requests": 30}  # fmt: skip
    hour = (NOW - timedelta(hours=3)).replace(minute=0, second=0, microsecond=0)
    with db.begin() as connection:
        ensure_months(connection, [hour])
        for team in TEAMS:
            connection.execute(insert(UsageDayRow), [{**key, "team": team, "day": hour.replace(hour=0)}])
            connection.execute(insert(UsageHourRow), [{**key, "team": team, "hour": hour}])
        put_aliases(connection, "litellm", [Alias("key", "key-1", "search-prod")], NOW)
    return tmp_path


@pytest.fixture
def api_url(db: Engine, filled: Path) -> Iterator[str]:
    log = SpoolLog(filled / "log", SpoolSettings(reserve_bytes=0, reserve_percent=0), lambda: datetime.now(UTC))
    server = uvicorn.Server(uvicorn.Config(create_app(ApiSettings(data_dir=filled), db, log), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    log.close()


@pytest.fixture
def pages_url(api_url: str, tmp_path: Path) -> Iterator[str]:
    port, out = free_port(), tmp_path / "streamlit.log"
    address = ["--server.port", str(port), "--server.address", "127.0.0.1"]
    words = ["run", str(ROOT / "ui" / "app.py"), *STREAMLIT_FLAGS, *address, "--", "--api-url", api_url]
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", *words], stdout=file, stderr=file, start_new_session=True, cwd=tmp_path
        )
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/_stcore/health", process, out)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)


@pytest.fixture
def token(db: Engine) -> str:
    with db.begin() as connection:
        return create_token(connection, "ann", ("read", "operate"), "", NOW, None)[1]


@pytest.fixture
def page() -> Iterator[Page]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is absent: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        found = browser.new_page(viewport={"width": 1440, "height": 1000})
        found.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        yield found
        browser.close()


def settled(page: Page) -> None:
    expect(page.get_by_role("heading", name="Versions")).to_be_visible()
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    expect(page.get_by_test_id("stException")).to_have_count(0)
    expect(page.get_by_test_id("stDataFrame").nth(1)).to_be_visible()


def type_cell(page: Page, column: int, text: str) -> None:
    """Type into a cell of the first row of the rules (its columns: Order, Rule, When, five parts, Then)."""
    place = page.get_by_test_id("stDataFrame").nth(1).bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + 60, place["y"] + 52)
    page.wait_for_timeout(700)
    for _ in range(column):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator("#portal textarea, #portal input").first.wait_for()
    page.keyboard.insert_text(text)
    page.wait_for_timeout(300)
    page.keyboard.press("Enter")
    page.wait_for_timeout(1500)


def test_rules_are_typed_previewed_and_published(page: Page, pages_url: str, token: str, db: Engine, tmp_path: Path) -> None:
    page.goto(f"{pages_url}/settings_tenants?by=key_id")
    page.get_by_label("API token", exact=True).fill(token)
    page.keyboard.press("Enter")
    settled(page)
    expect(page.get_by_text("every source is taken at its word")).to_be_visible()
    page.screenshot(path=tmp_path / "before-1440.png", full_page=True)

    page.wait_for_timeout(2_000)
    type_cell(page, 1, "by app")
    type_cell(page, 2, "tag.app =~ (.+)")
    type_cell(page, 5, "$1")
    settled(page)
    expect(page.get_by_role("button", name="Publish")).to_be_disabled()
    page.get_by_role("button", name="Preview the last 7 days").click()
    expect(page.get_by_text("no quarter hour of it is closed and priced")).to_be_visible()
    settled(page)
    page.get_by_label("Reason", exact=True).fill("one project an app")
    page.keyboard.press("Enter")
    settled(page)
    page.screenshot(path=tmp_path / "preview-1440.png", full_page=True)
    page.set_viewport_size({"width": 800, "height": 1000})
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=tmp_path / "preview-800.png", full_page=True)
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published. Version 1")).to_be_visible()
    settled(page)
    page.screenshot(path=tmp_path / "published-800.png", full_page=True)
    with db.connect() as connection:
        (version,) = rule_versions(connection)
    assert (version.author, version.reason) == ("ann", "one project an app")
    (rule,) = version.rules.rules
    assert (rule.name, rule.sets, rule.when[0].field) == ("by app", (("project", "$1"),), "tag.app")
    assert in_force([version], NOW) is None
