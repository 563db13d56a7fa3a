"""How whole and how fresh the numbers are: stream progress, quarantined records, data faults."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from core.windows import Window
from models.tables_usage import AppliedFileRow, DataFaultRow, QuarantineRow, StreamStateRow


@dataclass(frozen=True, slots=True)
class StreamLag:
    """One topic's progress. ``applied_at``: when its last delta file was applied; None: none ever was."""

    topic: str
    catching_up: bool
    behind_lines: int
    updated_at: datetime
    applied_at: datetime | None


@dataclass(frozen=True, slots=True)
class Quarantined:
    field: str
    reason: str
    records: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class DataFault:
    kind: str
    source: str
    window_start: datetime
    window_end: datetime
    detail: dict[str, Any]
    noticed_at: datetime


def stream_lags(connection: Connection) -> list[StreamLag]:
    """Progress by topic (usage, engine)."""
    files, state = AppliedFileRow, StreamStateRow
    last = select(files.kind, func.max(files.applied_at).label("at")).group_by(files.kind).subquery()
    query = (
        select(state.topic, state.catching_up, state.log_lines - state.read_lines, state.updated_at, last.c.at)
        .join(last, last.c.kind == state.topic, isouter=True)
        .order_by(state.topic)
    )
    return [StreamLag(r[0], r[1], max(0, r[2]), r[3], r[4]) for r in connection.execute(query)]


def freshness(connection: Connection) -> datetime | None:
    """Up to when usage is counted: the stream's last word when it is level with the log, else its last applied delta."""
    usage = next((lag for lag in stream_lags(connection) if lag.topic == "usage"), None)
    if usage is None:
        return None
    return usage.updated_at if not usage.catching_up and usage.behind_lines == 0 else usage.applied_at


def quarantine_counts(connection: Connection, window: Window) -> list[Quarantined]:
    """Records refused in ``window`` by field and reason, most first (at most 200 kinds)."""
    q = QuarantineRow
    count = func.count().label("records")
    query = (
        select(q.field, q.reason, count, func.max(q.received_at))
        .where(q.received_at >= window.start, q.received_at < window.end)
        .group_by(q.field, q.reason)
        .order_by(count.desc(), q.field, q.reason)
        .limit(200)
    )
    return [Quarantined(*row) for row in connection.execute(query)]


def data_faults(connection: Connection, window: Window, limit: int) -> tuple[list[DataFault], int]:
    """The newest faults that touch ``window``, and how many there are in all."""
    f = DataFaultRow
    touching = (f.window_start < window.end, f.window_end >= window.start)
    total = connection.execute(select(func.count()).select_from(f).where(*touching)).scalar_one()
    query = (
        select(f.kind, f.source, f.window_start, f.window_end, f.detail, f.noticed_at)
        .where(*touching)
        .order_by(f.window_start.desc(), f.id)
        .limit(limit)
    )
    return [DataFault(*row) for row in connection.execute(query)], total
