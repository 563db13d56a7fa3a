"""Shared pieces of the usage tests: a log in memory that keeps the port's promises, and ordinary records."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from core.errors import DiskFull
from core.ports import Ack, LogBatch, LogLine, Topic
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import ParsedRow, SourceOptions
from ingest.usage.service import UsageIngest

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


class MemoryLog:
    """``EventLog`` in memory; ``full`` makes it refuse as a full disk does."""

    def __init__(self) -> None:
        self.batches: dict[str, list[LogBatch]] = {}
        self.full = False

    def append(self, topic: Topic, batch: LogBatch) -> Ack:
        if self.full and topic == "usage":
            raise DiskFull("the disk is full")
        self.batches.setdefault(topic, []).append(batch)
        return Ack(topic, "00000000-000000000001", 0, len(batch.lines))

    def read(self, topic: Topic, after: str | None = None, limit: int = 10_000) -> Iterator[LogLine]:
        yield from (LogLine(str(n), text) for n, text in enumerate(self.lines(topic)))

    def close(self) -> None:
        return None

    def lines(self, topic: str) -> list[str]:
        return [line for batch in self.batches.get(topic, []) for line in batch.lines]

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(record) for batch in self.batches.get("usage", []) for record in batch.records]

    def quarantined(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines("quarantine")]


def ingest_into(log: MemoryLog, *, archive: set[str] | None = None, days: list[datetime] | None = None) -> UsageIngest:
    return UsageIngest(
        log,
        now=lambda: NOW,
        ensure_partitions=lambda times: days.extend(sorted(times)) if days is not None else None,
        archive_has=lambda ids: set(ids) & (archive or set()),
    )


def usage_item(number: int = 1, **changes: Any) -> dict[str, Any]:
    started = NOW - timedelta(seconds=60) + timedelta(milliseconds=number)
    return {
        "schema": "usage/1",
        "request_id": f"chatcmpl-{number}:generation",
        "started_at": started.isoformat(),
        "first_token_at": (started + timedelta(seconds=1)).isoformat(),
        "finished_at": (started + timedelta(seconds=9)).isoformat(),
        "deployment": {"cluster": "c", "namespace": "n", "model_id": "m"},
        "tenant": {"org": "acme", "team": "search", "project": "", "user": "", "key_id": "k"},
        "tokens": dict.fromkeys(("input_cache_read", "input_cache_write_5m", "input_cache_write_1h", "output_reasoning"), 0)
        | {"input_uncached": 100 + number, "output": 7},
        "usage_source": "exact",
        "status": "ok",
        "service_tier": "P1",
    } | changes


def parsed(format: str, body: bytes, options: SourceOptions | None = None) -> list[ParsedRow]:
    return list(ADAPTERS[format].rows(io.BytesIO(body), options or SourceOptions()))
