"""The event log on local disk: group-committed, fsynced segments that become visible by an atomic rename."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from core.ports import Ack, LogBatch, LogLine, Topic


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """``reserve_bytes`` and ``reserve_percent``: the larger of both stays free on the disk."""

    segment_age_s: float = 0.25
    segment_bytes: int = 64 * 1024 * 1024
    reserve_bytes: int = 1024**3
    reserve_percent: int = 2
    retry_after_s: int = 30
    retention: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class DiskSpace:
    free_bytes: int
    total_bytes: int


class SpoolLog:
    """core.ports.EventLog over ``folder`` = DATA/log (archived segments are read back from DATA/archive)."""

    def __init__(
        self,
        folder: Path,
        settings: SpoolSettings,
        now: Callable[[], datetime],
        *,
        space: Callable[[Path], DiskSpace] | None = None,
    ) -> None:
        raise NotImplementedError

    def append(self, topic: Topic, batch: LogBatch) -> Ack:
        raise NotImplementedError

    def read(self, topic: Topic, after: str | None = None, limit: int = 10_000) -> Iterator[LogLine]:
        raise NotImplementedError

    def flush(self) -> None:
        """Publish open segments now, so that readers and the job see what was acknowledged."""
        raise NotImplementedError

    def sweep_retention(self, topic: Topic, read_through: str) -> list[str]:
        """Remove segments of topic quarantine or fault read through that offset and older than the retention; returns their names."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
