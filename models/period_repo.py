"""Closed periods and the kept lines of a period: rows <-> plain values. Nothing here commits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from sqlalchemy import Connection, Table, func, insert, select

from core.money import plain
from core.period_line import PeriodLine
from core.windows import Window
from models.tables_period import LedgerPeriodRow, PeriodLineRow, PeriodVersionRow

_PERIOD = cast(Table, LedgerPeriodRow.__table__)
_VERSION = cast(Table, PeriodVersionRow.__table__)
_LINE = cast(Table, PeriodLineRow.__table__)
INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ClosedPeriod:
    """A month whose statement was sent; ``totals``: what stood on it, in plain JSON."""

    period: date
    window: Window
    closed_at: datetime
    closed_by: str
    reason: str
    totals: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeptLines:
    """Lines of a period as kept ``at`` an instant; version 0 with no lines: never kept."""

    version: int
    at: datetime | None
    source: str
    lines: tuple[PeriodLine, ...]


def closed_periods(connection: Connection) -> list[ClosedPeriod]:
    """Oldest first."""
    rows = connection.execute(select(_PERIOD).order_by(_PERIOD.c.period))
    return [
        ClosedPeriod(r.period, Window(r.window_start, r.window_end), r.closed_at, r.closed_by, r.reason, r.totals) for r in rows
    ]


def add_closed(connection: Connection, closed: ClosedPeriod) -> None:
    row: dict[str, Any] = {"period": closed.period, "window_start": closed.window.start, "window_end": closed.window.end}
    row |= {"closed_at": closed.closed_at, "closed_by": closed.closed_by, "reason": closed.reason, "totals": closed.totals}
    connection.execute(insert(_PERIOD), [row])


def after_last_close(connection: Connection, now: datetime) -> datetime:
    """``now``, or an instant after the last period's close if that is later: a version written once a statement was sent must not
    look as if it had stood on it, whatever the clocks of the two processes say."""
    last = connection.execute(select(func.max(_PERIOD.c.closed_at))).scalar_one()
    return now if last is None or last < now else last + INSTANT


def kept_lines(connection: Connection, period: date, as_of: datetime | None = None) -> KeptLines:
    """The newest kept version of a period's lines, or the newest ``as_of`` an instant."""
    query = select(_VERSION).where(_VERSION.c.period == period).order_by(_VERSION.c.version.desc()).limit(1)
    if as_of is not None:
        query = query.where(_VERSION.c.at <= as_of)
    head = connection.execute(query).one_or_none()
    if head is None:
        return KeptLines(0, None, "", ())
    rows = connection.execute(select(_LINE).where(_LINE.c.period == period, _LINE.c.version == head.version).order_by(_LINE.c.id))
    return KeptLines(head.version, head.at, head.source, tuple(_line(row) for row in rows))


def keep_lines(connection: Connection, period: date, lines: Sequence[PeriodLine], source: str, at: datetime) -> int:
    """Keep these as the period's next version; returns its number. The same lines again make none."""
    digest = hashlib.sha256("\n".join(sorted(_text(line) for line in lines)).encode()).hexdigest()
    query = select(_VERSION).where(_VERSION.c.period == period).order_by(_VERSION.c.version.desc()).limit(1)
    last = connection.execute(query).one_or_none()
    if last is not None and last.digest == digest:
        return int(last.version)
    version = 1 if last is None else last.version + 1
    connection.execute(insert(_VERSION), [{"period": period, "version": version, "at": at, "digest": digest, "source": source}])
    if lines:
        connection.execute(insert(_LINE), [{"period": period, "version": version, **_values(line)} for line in lines])
    return version


def _values(line: PeriodLine) -> dict[str, str | Decimal]:
    return {name: getattr(line, name) for name in PeriodLine.__dataclass_fields__}


def _line(row: Any) -> PeriodLine:
    return PeriodLine(**{name: getattr(row, name) for name in PeriodLine.__dataclass_fields__})


def _text(line: PeriodLine) -> str:
    return "\t".join(plain(value) if isinstance(value, Decimal) else value for value in _values(line).values())
