"""In-memory stand-ins that keep the same contracts as the real adapters."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from core.errors import BadInput, DiskFull, Unavailable
from core.ports import Ack, LogBatch, LogLine, Topic


@dataclass
class MemoryDisk:
    """What outlives a log: the lines of each topic. ``is_full`` makes appends fail as a full disk does."""

    topics: dict[str, list[tuple[str, bytes | None]]] = field(default_factory=lambda: defaultdict(list))
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_full: bool = False


class MemoryLog:
    """``core.ports.EventLog`` in memory."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._is_closed = False

    def append(self, topic: Topic, batch: LogBatch) -> Ack:
        if self._is_closed:
            raise Unavailable("The event log is closed.")
        self._check(topic, batch)
        if self._disk.is_full:
            raise DiskFull("The disk is full.", retry_after_s=30)
        with self._disk.lock:
            rows = self._disk.topics[topic]
            first_line = len(rows)
            rows.extend(zip(batch.lines, batch.records or [None] * len(batch.lines), strict=True))
        return Ack(topic, "memory", first_line, len(batch.lines))

    def read(self, topic: Topic, after: str | None = None, limit: int = 10_000) -> Iterator[LogLine]:
        try:
            first = 0 if after is None else int(after) + 1
        except ValueError:
            raise BadInput("is not an offset of this log", field="after", value=after) from None
        rows = enumerate(list(self._disk.topics[topic]))
        return (LogLine(f"{n:012d}", line, record) for n, (line, record) in islice(rows, first, first + limit))

    def close(self) -> None:
        self._is_closed = True

    def _check(self, topic: Topic, batch: LogBatch) -> None:
        if not batch.lines:
            raise BadInput("batch holds no line", field="lines")
        if batch.records and (topic not in ("usage", "engine") or len(batch.records) != len(batch.lines)):
            raise BadInput("does not fit the lines", field="records")
        if any(set(line) & set("\r\n\0") for line in batch.lines) or any(
            set(record) & set(b"\r\n\0") for record in batch.records
        ):
            raise BadInput("holds a line break or NUL", field="lines")
