"""A window cut into the coarsest rollups that make it up exactly: minutes at its edges, then hours, UTC days and UTC months."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from core.errors import BadInput
from core.windows import Window, floor_time, zone

Level = Literal["minute", "hour", "day", "month"]
STEPS: dict[Level, timedelta] = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
FINER: dict[Level, Level] = {"month": "day", "day": "hour", "hour": "minute"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of ``usage_<level>`` whose time lies in [start, end)."""

    level: Level
    start: datetime
    end: datetime


def pieces(window: Window, coarsest: Level) -> tuple[Piece, ...]:
    """Disjoint pieces that cover the window, none coarser than ``coarsest``. Raises BadInput when an edge is no whole minute."""
    for name, edge in (("from", window.start), ("to", window.end)):
        if floor_time(edge, STEPS["minute"]) != edge:
            raise BadInput("usage is kept by the minute", field=name, value=edge.isoformat(), hint="give whole minutes")
    return tuple(sorted(_cut(window.start, window.end, coarsest), key=lambda piece: piece.start))


def _cut(start: datetime, end: datetime, level: Level) -> list[Piece]:
    if start >= end:
        return []
    if level == "minute":
        return [Piece(level, start, end)]
    inner_start, inner_end = _begin(start, level), _begin(end, level)
    if inner_start < start:
        inner_start = _begin(inner_start + timedelta(days=32) if level == "month" else inner_start + STEPS[level], level)
    finer = FINER[level]
    if inner_start >= inner_end:
        return _cut(start, end, finer)
    return [*_cut(start, inner_start, finer), Piece(level, inner_start, inner_end), *_cut(inner_end, end, finer)]


def _begin(at: datetime, level: Level) -> datetime:
    """The start of the UTC minute, hour, day or month that holds ``at``."""
    if level == "month":
        return floor_time(at, STEPS["day"]).replace(day=1)
    return floor_time(at, STEPS[level])


def coarsest_for(time_key: str | None, window: Window, zone_name: str) -> Level:
    """The coarsest rollup that can still be grouped by the time key: local days need hours, or minutes where the zone's offset
    is no whole hour."""
    if time_key == "minute":
        return "minute"
    if time_key == "hour":
        return "hour"
    if time_key is None:
        return "month"
    if zone_name == "UTC":
        return "day"
    tz = zone(zone_name)
    offsets = {at.astimezone(tz).utcoffset() for at in (window.start, window.start + (window.end - window.start) / 2, window.end)}
    whole_hours = all(offset is not None and offset % timedelta(hours=1) == timedelta(0) for offset in offsets)
    return "hour" if whole_hours else "minute"
