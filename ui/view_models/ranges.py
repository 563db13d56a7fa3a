"""Time ranges: a named one, or two times a person typed. All clock times on the pages are UTC and say so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from core.errors import BadInput
from core.windows import Window, floor_time

MINUTE = timedelta(minutes=1)
LONGEST = timedelta(days=3660)
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
MONTH, CUSTOM = "month", "custom"
SPANS: Mapping[str, timedelta] = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
RANGES: Mapping[str, str] = {
    MONTH: "This month",
    "1h": "Last hour",
    "24h": "Last 24 hours",
    "7d": "Last 7 days",
    "30d": "Last 30 days",
    CUSTOM: "From … to …",
}
FORM = "write YYYY-MM-DD or YYYY-MM-DD HH:MM, in UTC"


def last(choice: str, now: datetime) -> Window:
    """The span of ``SPANS`` that ends with the running minute: a minute's views share one answer."""
    end = floor_time(now.astimezone(UTC), MINUTE) + MINUTE
    return Window(end - SPANS[choice], end)


def typed(start: str, end: str, now: datetime) -> Window:
    """The half-open window between two typed times. Raises BadInput that names the box and what to write."""
    window_start, window_end = _time("From", start), _time("To", end)
    if window_start >= window_end:
        raise BadInput("must be later than From", field="To", value=end, hint="choose a later time")
    if window_start > now:
        raise BadInput("lies in the future: nothing is counted there yet", field="From", value=start)
    if window_end - window_start > LONGEST:
        raise BadInput("is more than ten years before To", field="From", value=start, hint="choose a shorter range")
    return Window(window_start, window_end)


def _time(field: str, text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise BadInput("is not a time", field=field, value=text, hint=FORM) from error
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    if not EARLIEST <= at < LATEST:
        raise BadInput("is outside the years 2000 to 2199", field=field, value=text)
    if floor_time(at.astimezone(UTC), MINUTE) != at:
        raise BadInput("must be a whole minute", field=field, value=text, hint=FORM)
    return at.astimezone(UTC)


def params(window: Window | None) -> dict[str, str]:
    """Query parameters of a window; none: the API's own running month of the reporting zone."""
    return {} if window is None else {"from": _rfc3339(window.start), "to": _rfc3339(window.end)}


def parsed(meta: Mapping[str, Any]) -> Window:
    """The window that an answer is about."""
    return Window(datetime.fromisoformat(meta["window_start"]), datetime.fromisoformat(meta["window_end"]))


def before(window: Window) -> Window:
    """As much time directly before."""
    return Window(window.start - window.duration, window.start)


def elapsed(window: Window, now: datetime) -> Window:
    """The part of a window that has begun, in whole minutes."""
    end = min(window.end, floor_time(now.astimezone(UTC), MINUTE) + MINUTE)
    return Window(window.start, max(end, window.start + MINUTE))


def words(window: Window) -> str:
    """Such as ``2026-11-01 00:00 to 2026-11-30 12:08 UTC``."""
    return f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"


def _rfc3339(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
