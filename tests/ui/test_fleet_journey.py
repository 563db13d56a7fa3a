"""Fleet, Heat map and Data quality in real Chromium: they fit, and a link reproduces the view."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_server import GOOD_TOKEN
from playwright.sync_api import Browser, Page, expect
from test_journey import WAIT_MS, browser

__all__ = ["browser"]
pytestmark = pytest.mark.browser
PAGES = {
    "fleet": ("range=24h&figure=decode_ms_per_token", "Decode per token by hour", 1),
    "heat_map": ("range=7d&kind=output", "Requests by output length", 1),
    "why": ("first=2026-05&second=2026-06", "From 2026-05 to 2026-06, USD", 1),
    "data_quality": ("range=7d", "Engine view against gateway view", 0),
}
"""Page -> its view in the address, a heading of that view, and how many charts it has."""


def _open(browser: Browser, address: str, width: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    page.goto(address)
    page.get_by_label("API token", exact=True).fill(GOOD_TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_text("What these numbers rest on")).to_be_visible()
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    expect(page.get_by_test_id("stException")).to_have_count(0)
    return page


@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("name", PAGES)
def test_the_page_fits_and_the_link_decides_the_view(
    browser: Browser, ui_url: str, tmp_path: Path, name: str, width: int
) -> None:
    view, heading, charts = PAGES[name]
    page = _open(browser, f"{ui_url}/{name}?{view}", width)
    expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(charts)
    expect(page.get_by_test_id("stMetricValue").first).to_be_visible()
    cut = "els => els.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"
    assert page.get_by_test_id("stMetricValue").locator("div").evaluate_all(cut) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=tmp_path / f"{name}-{width}.png")
