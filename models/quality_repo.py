"""How whole and how fresh the numbers are: stream progress, quarantined records, data faults."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, case, func, select

from core.windows import Window
from models.tables_usage import AppliedFileRow, DataFaultRow, QuarantineRow, StreamStateRow

STREAM_SILENT_AFTER = timedelta(seconds=60)
"""A running stream writes its state a few times a second; between two jobs it says that it catches up before it falls silent."""
SELDOM = ("quarantine", "fault")
"""Topics whose state is written only when lines come: nothing follows from their silence."""


@dataclass(frozen=True, slots=True)
class StreamLag:
    """One topic's progress. ``says_behind``: by its own last word it is behind the log end it saw at its start; ``silent``: its
    last word is too old to go by. ``applied_at``: when its last delta file was applied; None: none ever was."""

    topic: str
    says_behind: bool
    silent: bool
    behind_lines: int
    updated_at: datetime
    applied_at: datetime | None

    @property
    def catching_up(self) -> bool:
        """Behind by its own word, or silent: stopped or dead, so nobody knows."""
        return self.says_behind or self.silent


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


def stream_lags(connection: Connection, now: datetime) -> list[StreamLag]:
    """Progress by topic (usage, engine …). A topic that never ran has no row: it has nothing to catch up with."""
    files, state = AppliedFileRow, StreamStateRow
    applied = select(func.max(files.applied_at)).where(files.kind == state.topic).scalar_subquery()
    query = select(state.topic, state.catching_up, state.log_lines - state.read_lines, state.updated_at, applied)
    rows = connection.execute(query.order_by(state.topic))
    return [StreamLag(r[0], r[1], r[0] not in SELDOM and _silent(r[3], now), max(0, r[2]), r[3], r[4]) for r in rows]


def usage_catching_up(connection: Connection, now: datetime) -> bool:
    """Whether decisions on usage must hold: as ``StreamLag.catching_up`` says it, on every loader commit."""
    state = StreamStateRow
    row = connection.execute(select(state.catching_up, state.updated_at).where(state.topic == "usage")).one_or_none()
    return row is not None and (row[0] or _silent(row[1], now))


def _silent(updated_at: datetime, now: datetime) -> bool:
    return now - updated_at > STREAM_SILENT_AFTER


def freshness(connection: Connection) -> datetime | None:
    """Up to when usage is counted: the stream's last word when it was level with the log then, else its last applied delta."""
    files, state = AppliedFileRow, StreamStateRow
    applied = select(func.max(files.applied_at)).where(files.kind == "usage").scalar_subquery()
    level = ~state.catching_up & (state.log_lines <= state.read_lines)
    query = select(case((level, state.updated_at), else_=applied)).where(state.topic == "usage")
    return connection.execute(query).scalar_one_or_none()


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
