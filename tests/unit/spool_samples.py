"""Sample lines and spools for the event log's own tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from core.ports import LogBatch
from eventlog.spool import DiskSpace, SpoolLog, SpoolSettings

PLENTY = DiskSpace(free_bytes=50 * 1024**3, total_bytes=100 * 1024**3)
NEVER_S = 3600.0
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def spool(folder: Path, *, age_s: float = NEVER_S, **settings: int) -> SpoolLog:
    """A spool on ``folder`` whose segments stay open unless rolled, on a disk with plenty of room."""
    chosen = SpoolSettings(segment_age_s=age_s, **settings)  # type: ignore[arg-type]
    return SpoolLog(folder, chosen, lambda: datetime.now(UTC), space=lambda _: PLENTY)


def usage_line(request_id: str, finished_ms: int = 60_000, *, counted: int = 1, model: str = "m") -> str:
    return f"{request_id},{finished_ms},{finished_ms},c,n,{model},o,t,p,u,k,P1,ok,exact,0,10,0,0,0,5,1,0,0,1,{counted}"


def usage_batch(*request_ids: str, finished_ms: int = 60_000) -> LogBatch:
    records = [f'{{"request_id":"{name}"}}'.encode() for name in request_ids]
    return LogBatch([usage_line(name, finished_ms) for name in request_ids], records)


def ids(log: SpoolLog) -> list[str]:
    return [one.line.split(",")[0] for one in log.read("usage")]


def until(is_so: Callable[[], bool]) -> None:
    """Wait for another thread or process; the run's own timeout ends a wait in vain."""
    while not is_so():
        time.sleep(0.01)
