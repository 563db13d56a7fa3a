"""Aware UTC time and half-open windows ``[start, end)``; money days and periods in a reporting zone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from core.errors import BadInput

QUARTER_HOUR = timedelta(minutes=15)
MINUTE_MS = 60_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
Period = Literal["day", "week", "month", "quarter", "year"]
PERIODS: tuple[Period, ...] = ("day", "week", "month", "quarter", "year")
_MONTHS = {"quarter": 3, "year": 12}


def require_utc(at: datetime, field: str = "time") -> datetime:
    """Refuse a naive time; return it in UTC."""
    if at.tzinfo is None:
        raise BadInput("time has no zone", field=field, value=at, hint="send an offset, for example 2026-11-30T12:00:00Z")
    return at.astimezone(UTC)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Half-open ``[start, end)`` in aware UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", require_utc(self.start, "window_start"))
        object.__setattr__(self, "end", require_utc(self.end, "window_end"))
        if self.end <= self.start:
            raise BadInput("window must end after it starts", field="window_end", value=self.end.isoformat())

    @property
    def duration(self) -> timedelta:
        return self.end - self.start

    def contains(self, at: datetime) -> bool:
        return self.start <= at < self.end

    def overlap(self, other: Window) -> timedelta:
        """Time both windows share (zero if none)."""
        return max(timedelta(0), min(self.end, other.end) - max(self.start, other.start))

    def quanta(self, step: timedelta = QUARTER_HOUR) -> Iterator[Window]:
        """The aligned quanta that cover this window."""
        at = floor_time(self.start, step)
        while at < self.end:
            yield Window(at, at + step)
            at += step


def floor_time(at: datetime, step: timedelta) -> datetime:
    """The last multiple of ``step`` since the epoch at or before ``at``."""
    at = require_utc(at)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (at - epoch) // step * step


def quarter_hour(at: datetime) -> Window:
    """The ledger quantum that holds ``at``."""
    start = floor_time(at, QUARTER_HOUR)
    return Window(start, start + QUARTER_HOUR)


def epoch_ms(at: datetime) -> int:
    """Whole milliseconds since the epoch (floor)."""
    return (require_utc(at) - _EPOCH) // _MILLISECOND


def from_epoch_ms(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def zone(name: str) -> ZoneInfo:
    """A named IANA zone, or BadInput."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BadInput("unknown time zone", field="zone", value=name, hint="use an IANA name such as Asia/Shanghai") from error


def period_window(period: Period, at: datetime, zone_name: str, fiscal_start: int = 1) -> Window:
    """The calendar day, ISO week, month, quarter or year of ``at`` in the reporting zone, as UTC instants.

    ``fiscal_start``: the month, 1 to 12, in which years begin; quarters are counted from it. A day across a daylight-saving
    change has 23 or 25 hours: 2026-10-25 in Europe/Berlin has 25.
    """
    return _period_of_day(period, require_utc(at).astimezone(zone(zone_name)).date(), zone_name, fiscal_start)


@lru_cache(maxsize=4096)
def _period_of_day(period: Period, day: date, zone_name: str, fiscal_start: int) -> Window:
    """Asked for again and again: every budget of a list has a period, most of them the same."""
    tz = zone(zone_name)
    first, after = _period_days(period, day, fiscal_start)
    return Window(_midnight(first, tz), _midnight(after, tz))


def _period_days(period: Period, day: date, fiscal_start: int) -> tuple[date, date]:
    if period == "day":
        return day, day + timedelta(days=1)
    if period == "week":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=7)
    if period == "month":
        return month_on(day, 0), month_on(day, 1)
    if period in _MONTHS:
        months = _MONTHS[period]
        first = month_on(day, -((day.month - fiscal_start) % 12 % months))
        return first, month_on(first, months)
    raise BadInput("unknown period", field="period", value=period, hint=f"use {', '.join(PERIODS)}")


def month_on(day: date, months: int) -> date:
    """The first of the month so many months after (below zero: before) that of ``day``."""
    years, month = divmod(day.month - 1 + months, 12)
    return date(day.year + years, month + 1, 1)


def _midnight(day: date, tz: ZoneInfo) -> datetime:
    return datetime.combine(day, time(0), tzinfo=tz).astimezone(UTC)
