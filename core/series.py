"""A metric over time: windows of equal length, their values, and which of them may be part of a baseline.

Statistics are in float64: they are compared with thresholds and never booked. Money beside them stays Decimal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from core.windows import Window

Floats = NDArray[np.float64]
Seconds = NDArray[np.int64]
HOUR_S = 3600
HOURS_OF_WEEK = 168


@dataclass(frozen=True, slots=True)
class Point:
    """One window of a metric. ``value`` None: not known. ``tokens`` say how much stands behind it (a mean over few is noise)."""

    at: datetime
    value: float | None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Starts of windows in unix seconds, ascending and unique, and values (NaN: not known)."""

    times: Seconds
    values: Floats

    def __len__(self) -> int:
        return len(self.times)

    def before(self, at: datetime) -> Series:
        """The windows that start before ``at``."""
        return self._cut(0, int(np.searchsorted(self.times, at.timestamp(), "left")))

    def since(self, at: datetime) -> Series:
        """The windows that start at ``at`` or later."""
        return self._cut(int(np.searchsorted(self.times, at.timestamp(), "left")), len(self))

    def last(self, count: int) -> Series:
        return self._cut(max(0, len(self) - count), len(self))

    def without(self, windows: Iterable[Window]) -> Series:
        """Windows that start inside one of these have no value: what an incident did is nobody's baseline."""
        values = self.values.copy()
        for window in windows:
            inside = (self.times >= window.start.timestamp()) & (self.times < window.end.timestamp())
            values[inside] = np.nan
        return Series(self.times, values)

    def known(self) -> Series:
        """The windows with a value."""
        keep = ~np.isnan(self.values)
        return Series(self.times[keep], self.values[keep])

    def _cut(self, start: int, end: int) -> Series:
        return Series(self.times[start:end], self.values[start:end])


def series_of(points: Iterable[Point], *, min_tokens: int = 0) -> Series:
    """Points in any order; of copies of a window the last given counts. With fewer than ``min_tokens`` a value is not known."""
    found = {int(p.at.timestamp()): _value(p, min_tokens) for p in points}
    times = sorted(found)
    return Series(np.array(times, dtype=np.int64), np.array([found[t] for t in times], dtype=np.float64))


def _value(point: Point, min_tokens: int) -> float:
    few = point.tokens is not None and point.tokens < min_tokens
    return float("nan") if point.value is None or few else point.value


def hours_of_week(times: Seconds, zone_name: str) -> Seconds:
    """The hour of the week on the zone's clock (0 is Monday from midnight on), a window at a time."""
    hours, place = np.unique(times // HOUR_S, return_inverse=True)
    local = np.array([_hour_of_week(int(hour), zone_name) for hour in hours], dtype=np.int64)
    return local[place] if len(local) else np.zeros(0, dtype=np.int64)


def hour_of_week(at: datetime, zone_name: str) -> int:
    """``hours_of_week`` of one instant."""
    return _hour_of_week(int(at.timestamp()) // HOUR_S, zone_name)


@lru_cache(maxsize=1 << 16)
def _hour_of_week(hour: int, zone_name: str) -> int:
    local = datetime.fromtimestamp(hour * HOUR_S, UTC).astimezone(ZoneInfo(zone_name))
    return local.weekday() * 24 + local.hour


def band_of(hour: int) -> int:
    """Weekday or weekend x 6 hours of an hour of the week: 0 to 7, weekends from 4 on."""
    return (4 if hour >= 120 else 0) + hour % 24 // 6
