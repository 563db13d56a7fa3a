"""Real Tokenfuse APIs on real sockets, each with a log of its own; and a junction that hands what comes in to several."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import uvicorn
from sqlalchemy import Engine

from api.app import create_app
from api.settings import ApiSettings
from core.usage import UsageRecord
from core.usage_codec import decode_usage
from eventlog.spool import DiskSpace, SpoolLog, SpoolSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "guard"))
from guard_servers import Server

PLENTY = DiskSpace(free_bytes=10**12, total_bytes=10**12)
WAIT_S = 30.0


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Api:
    """``records()`` are those in its log, each request id once, the first counting, as the stream does; ``quarantined()`` the
    lines it put aside."""

    url: str
    log: SpoolLog

    def records(self) -> list[UsageRecord]:
        self.log.flush()
        lines = self.log.read("usage", limit=1_000_000)
        first: dict[str, UsageRecord] = {}
        for record in (decode_usage(json.loads(line.record)) for line in lines if line.record):
            first.setdefault(record.request_id, record)
        return list(first.values())

    def quarantined(self) -> list[str]:
        self.log.flush()
        return [line.line for line in self.log.read("quarantine", limit=1_000_000)]


@contextmanager
def serving(engine: Engine, folder: Path) -> Iterator[Api]:
    """One API over this database with a log in ``folder``."""
    log = SpoolLog(folder / "log", SpoolSettings(), now, space=lambda _: PLENTY)
    app = create_app(ApiSettings(data_dir=folder, organisation="acme", failed_auth_per_minute=1000), engine, log, now=now)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    until_s = time.monotonic() + WAIT_S
    while not running.started and time.monotonic() < until_s:
        time.sleep(0.01)
    yield Api(f"http://127.0.0.1:{bound.getsockname()[1]}", log)
    running.should_exit = True
    thread.join(WAIT_S)
    log.close()


class Junction(Server):
    """Hands each post to every one of ``urls`` and answers with the first one's answer; with ``at_once`` it answers before that.
    ``open`` False: it answers 503 to all."""

    def __init__(self, *urls: str, at_once: bool = False) -> None:
        self.urls, self.at_once, self.open = urls, at_once, True
        super().__init__()

    def get(self, http: BaseHTTPRequestHandler) -> None:
        self._answer(http, self._forward(self.urls[0], "GET", http, b""))

    def post(self, http: BaseHTTPRequestHandler, raw: bytes) -> None:
        if self.at_once:
            self._answer(http, (202, b"{}"))
            http.wfile.flush()
        answers = [self._forward(url, "POST", http, raw) for url in self.urls]
        if not self.at_once:
            self._answer(http, answers[0])

    def _forward(self, url: str, method: str, http: BaseHTTPRequestHandler, raw: bytes) -> tuple[int, bytes]:
        if not self.open:
            return 503, b"{}"
        kept = ("authorization", "content-type", "if-none-match")
        headers = {name: value for name, value in http.headers.items() if name.lower() in kept}
        connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        try:
            connection.request(method, http.path, raw or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @staticmethod
    def _answer(http: BaseHTTPRequestHandler, given: tuple[int, bytes]) -> None:
        status, raw = given
        http.send_response(status)
        http.send_header("Content-Type", "application/json")
        http.send_header("Content-Length", str(len(raw)))
        http.end_headers()
        http.wfile.write(raw)
