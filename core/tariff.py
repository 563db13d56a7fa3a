"""Bands of an electricity tariff: the hours of which weekdays a price holds in, on the clock of the place that is billed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from core.errors import BadInput
from core.windows import QUARTER_HOUR, Window, floor_time, require_utc, zone

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60
HINT = "write it like: mon-fri 08:00-20:00 Europe/Berlin (days: mon-fri, sat,sun or all)"
_FORM = re.compile(r"(\S+) (\d{2}):(\d{2})-(\d{2}):(\d{2}) (\S+)")


@dataclass(frozen=True, slots=True)
class Band:
    """``[start, end)`` minutes of the local day on ``days`` (Monday 0). An end at or before the start is on the next day: the
    night after a named day belongs to the band. Edges lie on quarter hours, so a ledger window is in one band whole."""

    days: frozenset[int]
    start: int
    end: int
    zone: str

    def covers(self, at: datetime) -> bool:
        """Local clock time decides: on the day clocks go back an hour of the band may come twice, or not at all in spring."""
        local = require_utc(at).astimezone(zone(self.zone))
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        return (day in self.days and minute >= self.start) or ((day - 1) % 7 in self.days and minute < self.end)

    def edges(self, window: Window) -> set[datetime]:
        """Instants inside the window at which the band begins or ends."""
        found, at = set(), floor_time(window.start, QUARTER_HOUR)
        inside = self.covers(at)
        while (at := at + QUARTER_HOUR) < window.end:
            if self.covers(at) != inside:
                found.add(at)
                inside = not inside
        return found

    def __str__(self) -> str:
        return f"{_days_text(self.days)} {_clock(self.start)}-{_clock(self.end)} {self.zone}"


@lru_cache(maxsize=1024)
def parse_band(text: str) -> Band:
    """``mon-fri 08:00-20:00 Europe/Berlin``. Raises BadInput naming the field ``band``."""
    found = _FORM.fullmatch(" ".join(text.split()))
    if found is None:
        raise BadInput("is no band of a tariff", field="band", value=text, hint=HINT)
    days, *clock, zone_name = found.groups()
    start, end = (60 * int(hour) + int(minute) for hour, minute in (clock[:2], clock[2:]))
    for minutes, top in ((start, DAY_MINUTES - 1), (end, DAY_MINUTES)):
        if minutes > top or minutes % (QUARTER_HOUR // timedelta(minutes=1)):
            raise BadInput("times must be quarter hours of a day", field="band", value=text, hint=HINT)
    if start == end:
        raise BadInput("is empty", field="band", value=text, hint="00:00-24:00 is the whole day")
    zone(zone_name)
    return Band(_days(days, text), start, end, zone_name)


def _days(words: str, text: str) -> frozenset[int]:
    if words == "all":
        return frozenset(range(7))
    found: set[int] = set()
    for word in words.split(","):
        first, dash, last = word.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise BadInput("names a day that is none", field="band", value=text, hint=HINT)
        begin, span = DAYS.index(first), (DAYS.index(last) - DAYS.index(first)) % 7 if dash else 0
        found |= {(begin + n) % 7 for n in range(span + 1)}
    return frozenset(found)


def _days_text(days: frozenset[int]) -> str:
    if len(days) == 7:
        return "all"
    return ",".join(DAYS[day] for day in sorted(days))


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
