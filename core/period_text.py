"""A period as people write it: a month, an ISO week or a day in the reporting zone, or two instants."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time

from core.errors import BadInput
from core.windows import Period, Window, period_window, zone

HINT = "write a month 2026-06, an ISO week 2026-W23, a day 2026-06-01, or START..END with RFC 3339 times or dates"
_MONTH = re.compile(r"(\d{4})-(\d{2})")
_WEEK = re.compile(r"(\d{4})-W(\d{2})")


def parse_period(text: str, field: str, zone_name: str) -> Window:
    """``2026-06`` in Asia/Shanghai is [2026-05-31T16:00Z, 2026-06-30T16:00Z). A bare date in START..END is a midnight of the
    zone. Raises BadInput naming ``field``."""
    try:
        if ".." in text:
            start, end = text.split("..")
            return Window(_instant(start, field, zone_name), _instant(end, field, zone_name))
        period, day = _named(text)
        return period_window(period, datetime.combine(day, time(12), tzinfo=zone(zone_name)), zone_name)
    except (ValueError, OverflowError) as error:
        raise BadInput("not a period", field=field, value=text, hint=HINT) from error


def parse_month(text: str, field: str, *, where: str = "", hint: str = "write 2026-11") -> date:
    """The first day of ``YYYY-MM``. Raises BadInput naming ``field``."""
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError as error:
        raise BadInput("is not a month", where=where, field=field, value=text, hint=hint) from error


def _named(text: str) -> tuple[Period, date]:
    if month := _MONTH.fullmatch(text):
        return "month", date(int(month[1]), int(month[2]), 1)
    if week := _WEEK.fullmatch(text):
        return "week", date.fromisocalendar(int(week[1]), int(week[2]), 1)
    return "day", date.fromisoformat(text)


def _instant(text: str, field: str, zone_name: str) -> datetime:
    if len(text) == len("2026-06-01"):
        return datetime.combine(date.fromisoformat(text), time(0), tzinfo=zone(zone_name)).astimezone(UTC)
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise BadInput("time has no zone", field=field, value=text, hint="send an offset, for example 2026-06-01T12:00:00Z")
    return at
