"""An analyst's way through the pages in real Chromium: sign in, read, drill down, share the link, download.

Screenshots are left in pytest's folder of the run (``--basetemp`` to choose it).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from api_server import GOOD_TOKEN, Api
from pages_world import CHROMIUM, CHROMIUM_FLAGS
from playwright.sync_api import Browser, Page, expect, sync_playwright

pytestmark = pytest.mark.browser
WAIT_MS = 90_000
Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is absent: apt install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield running
        running.close()


def _page(browser: Browser, width: int = 1440, scheme: Scheme = "light") -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    return page


def _sign_in(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_label("API token", exact=True).fill(GOOD_TOKEN)
    page.keyboard.press("Enter")


def _done(page: Page) -> None:
    """Everything is drawn: the last element of every page is there, nothing runs, nothing failed."""
    expect(page.get_by_text("What these numbers rest on")).to_be_visible()
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    expect(page.get_by_test_id("stException")).to_have_count(0)


def _choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=False).first.click()
    page.get_by_role("option", name=option, exact=True).click()


def test_an_analysts_journey(browser: Browser, ui_url: str) -> None:
    page = _page(browser)
    _sign_in(page, ui_url)
    _done(page)
    cards = page.get_by_test_id("stMetricValue")
    expect(cards.nth(1)).to_have_text("1.14 USD")
    expect(cards.nth(3)).to_have_text("82.5 %")
    expect(page.get_by_text("Requests are being refused for: 星辰科技 / 客服机器人")).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(2)

    page.get_by_role("link", name="Unit cost").click()
    expect(page.get_by_role("heading", name="Unit cost")).to_be_visible()
    _done(page)
    _choose(page, "Group by", "Team")
    _choose(page, "Time range", "Last 24 hours")
    _choose(page, "Cost basis", "Usage basis (work only)")
    for part in ("range=24h", "basis=usage", "by=team"):
        page.wait_for_url(f"**{part}**")
    _done(page)

    with page.expect_download() as caught:
        page.get_by_role("button", name="Download what is shown (CSV)").click()
    rows = list(csv.reader(io.StringIO(caught.value.path().read_text("utf-8-sig"))))
    assert caught.value.suggested_filename.startswith("unit-cost-by-team-usage-")
    assert rows[0][:2] == ["Team", "Blended, USD/MTok"]
    assert [row[0] for row in rows[1:3]] == ["搜索推荐", "客服机器人"]
    assert "'=cmd|' /C calc'!A0" in [row[0] for row in rows]
    expect(page.get_by_label("Download as CSV")).to_be_hidden()
    shown, link = page.get_by_test_id("stMetricValue").all_inner_texts(), page.url

    colleague = _page(browser)
    _sign_in(colleague, link)
    _done(colleague)
    expect(colleague.get_by_test_id("stMetricValue")).to_have_text(shown)
    for part in ("range=24h", "basis=usage", "by=team"):
        assert part in colleague.url


def test_the_back_button_goes_back_to_the_view_before(browser: Browser, ui_url: str) -> None:
    page = _page(browser)
    _sign_in(page, f"{ui_url}/?range=24h")
    _done(page)
    _choose(page, "Time range", "Last 7 days")
    page.wait_for_url("**range=7d**")
    _done(page)
    page.go_back()
    page.wait_for_url("**range=24h**")
    expect(page.get_by_role("combobox", name="Time range")).to_have_value("Last 24 hours")


def test_an_expired_token_returns_to_sign_in_and_the_view_comes_back(browser: Browser, ui_url: str, local_api: Api) -> None:
    page = _page(browser)
    _sign_in(page, f"{ui_url}/unit_cost?by=org&range=24h")
    _done(page)
    local_api.revoked = True
    try:
        page.get_by_role("button", name="Refresh").click()
        expect(page.get_by_text("You were signed out")).to_be_visible()
    finally:
        local_api.revoked = False
    page.get_by_label("API token", exact=True).fill(GOOD_TOKEN)
    page.keyboard.press("Enter")
    _done(page)
    assert "by=org" in page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 800])
def test_both_pages_fit_in_both_widths_and_colours(
    browser: Browser, ui_url: str, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    page = _page(browser, width, scheme)
    _sign_in(page, ui_url)
    for name, path in (("overview", "/"), ("unit-cost", "/unit_cost?by=team&range=7d")):
        if name == "unit-cost":
            _sign_in(page, ui_url + path)
        _done(page)
        cut = "els => els.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"
        assert page.get_by_test_id("stMetricValue").locator("div").evaluate_all(cut) == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.screenshot(path=tmp_path / f"{name}-{width}-{scheme}.png")
    dark = (
        page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor") != "rgb(255, 255, 255)"
    )
    assert dark == (scheme == "dark")
