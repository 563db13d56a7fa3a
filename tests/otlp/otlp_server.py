"""What the tests of the receiver talk to: the API's address and tokens, its clock, and a log that can be said to be full."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from otlp_samples import NOW

from core.ports import Ack, LogBatch, LogLine, Topic
from eventlog.spool import SpoolLog

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
