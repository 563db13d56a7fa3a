"""Live scraping against real HTTP servers: what answers is a sample, everything else a gap with a fault."""

from __future__ import annotations

import csv
import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from core.engine_fold import parse_line
from core.errors import BadInput
from eventlog.spool import DiskSpace, SpoolLog, SpoolSettings
from ingest.engine.parse import Origin
from ingest.engine.scraper import LivePages, ScrapeSettings, Target, run_scraper, until_due_s
from ingest.engine.service import EngineIngest

NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
GOOD = b'vllm:prompt_tokens_total{engine="0",model_name="m"} 100\nvllm:num_requests_running{engine="0",model_name="m"} 1\n'
PLENTY = DiskSpace(free_bytes=10**12, total_bytes=10**12)
Answer = Callable[[BaseHTTPRequestHandler], None]


def answer(body: bytes, status: int = 200, *, length: int | None = None, **headers: str) -> Answer:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return send


class Server:
    """Serves one answer per path; ``release`` lets slow answers end."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked: list[str] = []
        self.answers: dict[str, Answer] = {
            "/metrics": answer(GOOD),
            "/cut": answer(GOOD[:-20], length=len(GOOD)),
            "/cut-unsaid": answer(GOOD[:-20]),
            "/error": answer(b"no", 500),
            "/unauthorised": answer(b"no", 401),
            "/moved": answer(b"", 302, Location="/metrics"),
            "/large": answer(b"# " + b"x" * 5000 + b"\n"),
            "/quiet": answer(b"python_gc_collections_total 3\n"),
            "/html": answer(b"<html>\n"),
            "/gzip": answer(b"not gzip", **{"Content-Encoding": "gzip"}),
            "/hang": self._hang,
            "/drip": self._drip,
        }
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                try:
                    server.answers[self.path](self)
                except OSError:
                    return  # the scraper hung up, which is what some answers are for

            def log_message(self, format: str, *args: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def _hang(self, _: BaseHTTPRequestHandler) -> None:
        self.release.wait(30)

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not self.release.wait(0.05):
            handler.wfile.write(b"# still here\n")

    def close(self) -> None:
        self.release.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SpoolLog]:
    spool = SpoolLog(tmp_path / "log", SpoolSettings(), lambda: NOW, space=lambda _: PLENTY)
    yield spool
    spool.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/cut", "page_cut_short"),
        ("/cut-unsaid", "page_cut_short"),
        ("/error", "http_status"),
        ("/unauthorised", "http_status"),
        ("/moved", "redirect_refused"),
        ("/large", "page_too_large"),
        ("/quiet", "no_engine_metrics"),
        ("/html", "bad_page"),
        ("/gzip", "bad_page"),
        ("/hang", "target_timeout"),
        ("/drip", "target_timeout"),
    ],
)
def test_a_target_without_a_whole_page_is_a_fault_and_no_sample(server: Server, log: SpoolLog, path: str, kind: str) -> None:
    source = LivePages([Target(server.url + path)], ScrapeSettings(timeout_s=0.3, max_bytes=4096), lambda: NOW)
    ingest = EngineIngest(log, lambda: NOW, lambda _: None)
    taken = ingest.take([(page, Origin()) for page in source.pages()], source.faults)
    server.release.set()
    source.close()
    log.flush()
    assert (taken.samples, taken.faults) == (0, 1)
    assert list(log.read("engine")) == []
    [fault] = [json.loads(entry.line) for entry in log.read("fault")]
    assert (fault["kind"], fault["source"]) == (kind, server.url + path)
    assert (fault["window_start"], fault["window_end"]) == ("2026-11-30T14:00:00Z", "2026-11-30T14:01:00Z")
    assert server.asked == [path], "a redirect is not followed"


def test_a_target_that_is_down_is_a_fault_and_the_others_are_scraped(server: Server) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    source = LivePages([Target(dead), Target(server.url)], ScrapeSettings(), lambda: NOW)
    assert [page.target for page in source.pages()] == [f"{server.url}/metrics"]
    assert [(fault.kind, fault.source) for fault in source.faults] == [("target_down", f"{dead}/metrics")]
    source.close()


def test_a_running_scraper_writes_samples_with_their_place_schedule_and_watch(server: Server, log: SpoolLog) -> None:
    stop, rounds = threading.Event(), []
    made: list[datetime] = []

    def on_round(samples: int, faults: int) -> None:
        rounds.append((samples, faults))
        if len(rounds) == 3:
            stop.set()

    target = Target(server.url, "A10G", 1, node="n1", cluster="c1", namespace="prod", model_id="chat")
    run_scraper([target], log, 0.05, stop, lambda: NOW, ensure_partitions=made.extend, on_round=on_round)
    log.flush()
    assert rounds == [(1, 0)] * 3
    assert made == [NOW] * 3
    first, *_ = [parse_line(fields) for fields in csv.reader(entry.line for entry in log.read("engine"))]
    assert (first.key.target, first.key.model_id, first.node) == (f"{server.url}/metrics", "chat", "n1")
    assert (first.deployment.cluster, first.deployment.namespace, first.deployment.model_id) == ("c1", "prod", "chat")
    assert (first.at, first.watched_since, first.interval_ms) == (NOW, NOW, 50)


def test_a_full_disk_costs_the_round_not_the_scraper(server: Server, tmp_path: Path) -> None:
    stop, rounds = threading.Event(), []

    def space(_: Path) -> DiskSpace:
        return PLENTY if rounds else DiskSpace(free_bytes=0, total_bytes=10**12)

    def on_round(samples: int, faults: int) -> None:
        rounds.append(samples)
        if len(rounds) == 2:
            stop.set()

    log = SpoolLog(tmp_path / "log", SpoolSettings(), lambda: NOW, space=space)
    run_scraper([Target(server.url)], log, 0.05, stop, lambda: NOW, ensure_partitions=lambda _: None, on_round=on_round)
    log.close()
    assert rounds == [0, 1]


@pytest.mark.parametrize(
    ("past_s", "interval_s", "wait_s"),
    [(0.5, 5.0, 4.5), (4.75, 5.0, 0.25), (5.0, 5.0, 5.0), (12.5, 5.0, 2.5), (1000.5, 5.0, 4.5)],
)
def test_rounds_are_due_at_multiples_of_the_interval_and_late_ones_are_left_out(
    past_s: float, interval_s: float, wait_s: float
) -> None:
    assert until_due_s(past_s, interval_s) == wait_s


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://gpu-1:8000", "http://gpu-1:8000/metrics"),
        ("http://gpu-1:8000/", "http://gpu-1:8000/metrics"),
        ("https://me:secret@gpu-1/engine/metrics?token=secret#x", "https://gpu-1/engine/metrics"),
        ("http://[::1]:8000/metrics", "http://[::1]:8000/metrics"),
    ],
)
def test_a_target_is_named_by_its_address_without_secrets(url: str, name: str) -> None:
    assert Target(url).name == name


@pytest.mark.parametrize("url", ["", "gpu-1:8000", "ftp://gpu-1/", "http://", "http://gpu-1:port", "file:///etc/passwd"])
def test_a_target_that_is_no_http_address_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        LivePages([Target(url)], ScrapeSettings(), lambda: NOW)
    assert caught.value.field == "url"


def test_a_target_listed_twice_is_refused_for_its_tokens_would_count_twice() -> None:
    with pytest.raises(BadInput, match="twice"):
        LivePages([Target("http://gpu-1:8000"), Target("http://gpu-1:8000/metrics")], ScrapeSettings(), lambda: NOW)
