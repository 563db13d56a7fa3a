"""The real API on a real socket: uvicorn in a thread over a database of the test's own and a real spool."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from otlp_samples import NOW
from sqlalchemy import Engine

from api.app import create_app
from api.settings import ApiSettings
from core.ports import Ack, LogBatch, LogLine, Topic
from eventlog.spool import SpoolLog, SpoolSettings
from models.access_repo import create_token

WAIT_S = 30


class Clock:
    """The time the API believes it is; without ``at`` the real one."""

    def __init__(self) -> None:
        self.at: datetime | None = NOW

    def __call__(self) -> datetime:
        return self.at or datetime.now(UTC)


@dataclass
class Log:
    """The spool, with a disk that can be said to be full or away: ``refusals`` are raised one an append of usage or counters."""

    spool: SpoolLog
    refusals: list[Exception] = field(default_factory=list)

    def append(self, topic: Topic, batch: LogBatch) -> Ack:
        if topic in ("usage", "counter") and self.refusals:
            raise self.refusals.pop(0)
        return self.spool.append(topic, batch)

    def read(self, topic: Topic, after: str | None = None, limit: int = 10_000) -> Iterator[LogLine]:
        self.spool.flush()
        return self.spool.read(topic, after, limit)

    def close(self) -> None:
        self.spool.close()

    def lines(self, topic: Topic) -> list[str]:
        return [line.line for line in self.read(topic)]

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line.record) for line in self.read("usage") if line.record]


@dataclass
class Server:
    url: str
    token: Callable[..., str]
    log: Log
    folder: Path
    clock: Clock

    def post(self, path: str, body: bytes, kind: str = "application/x-protobuf", **headers: str) -> httpx.Response:
        given = {"authorization": f"Bearer {self.token('ingest')}", "content-type": kind, **headers}
        return httpx.post(f"{self.url}{path}", content=body, headers=given, timeout=WAIT_S)


@pytest.fixture
def server(db: Engine, tmp_path: Path) -> Iterator[Server]:
    clock = Clock()
    log = Log(SpoolLog(tmp_path / "log", SpoolSettings(), clock))
    app = create_app(ApiSettings(data_dir=tmp_path, organisation="acme", failed_auth_per_minute=1000), db, log, now=clock)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    until_s = time.monotonic() + WAIT_S
    while not running.started and time.monotonic() < until_s:
        time.sleep(0.01)
    made: dict[tuple[str, str], str] = {}

    def token(*scopes: str, tenant: str = "") -> str:
        key = (",".join(scopes), tenant)
        if key not in made:
            with db.begin() as connection:
                made[key] = create_token(connection, f"token-{len(made)}", scopes, tenant, NOW, None)[1]
        return made[key]

    yield Server(f"http://127.0.0.1:{bound.getsockname()[1]}", token, log, tmp_path, clock)
    running.should_exit = True
    thread.join(WAIT_S)
    log.close()
