"""What every PageSource does: live targets and recorded folders alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from core.ports import Page, PageSource
from ingest.engine.replay import FolderPages
from ingest.engine.scraper import LivePages, ScrapeSettings, Target

NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
BODIES = {"1796040000": b"vllm:a 1\n", "1796040005": b"vllm:a 2\n"}
Made = tuple[PageSource, Callable[[], int]]
"""A source with both bodies and one place that cannot be read, and how many it could not read in its last walk."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = BODIES.get(self.path.strip("/"))
        self.send_response(200 if body else 500)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    thread.join()
    found.server_close()


def live(server: str, _: Path) -> Made:
    targets = [Target(f"{server}/{name}") for name in (*BODIES, "broken")]
    source = LivePages(targets, ScrapeSettings(), lambda: NOW)
    return source, lambda: len(source.faults)


def recorded(_: str, folder: Path) -> Made:
    for name, body in BODIES.items():
        (folder / f"{name}.prom").write_bytes(body)
    (folder / "1796040010.prom.gz").write_bytes(b"broken")
    source = FolderPages(folder, "recording", lambda: NOW)
    return source, lambda: len(source.skipped)


@pytest.fixture(params=[live, recorded])
def made(request: pytest.FixtureRequest, server: str, tmp_path: Path) -> Iterator[Made]:
    source, unread = request.param(server, tmp_path)
    yield source, unread
    if isinstance(source, LivePages):
        source.close()


def test_pages_are_whole_named_and_dated_in_utc(made: Made) -> None:
    pages = list(made[0].pages())
    assert [page.body for page in pages] == list(BODIES.values())
    assert all(isinstance(page, Page) and page.target and page.at.utcoffset() == timedelta(0) for page in pages)


def test_what_cannot_be_read_is_no_page_but_reported(made: Made) -> None:
    source, unread = made
    assert len(list(source.pages())) == 2
    assert unread() == 1


def test_a_second_walk_starts_over(made: Made) -> None:
    source, unread = made
    first, second = list(source.pages()), list(source.pages())
    assert [page.body for page in first] == [page.body for page in second]
    assert unread() == 1
