"""A window cut into the coarsest rollups that make it up exactly: minutes at its edges, then hours, then UTC days inside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from core.errors import BadInput
from core.windows import Window, floor_time, zone

Level = Literal["minute", "hour", "day"]
STEPS: dict[Level, timedelta] = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


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
    step = STEPS[level]
    finer: Level = "minute" if level == "hour" else "hour"
    inner_start, inner_end = floor_time(start + step - STEPS["minute"], step), floor_time(end, step)
    if inner_start >= inner_end:
        return _cut(start, end, finer)
    return [*_cut(start, inner_start, finer), Piece(level, inner_start, inner_end), *_cut(inner_end, end, finer)]


def coarsest_for(time_key: str | None, window: Window, zone_name: str) -> Level:
    """The coarsest rollup that can still be grouped by the time key: local days need hours, or minutes where the zone's offset
    is no whole hour."""
    if time_key == "minute":
        return "minute"
    if time_key == "hour":
        return "hour"
    if time_key is None or zone_name == "UTC":
        return "day"
    tz = zone(zone_name)
    offsets = {at.astimezone(tz).utcoffset() for at in (window.start, window.start + (window.end - window.start) / 2, window.end)}
    whole_hours = all(offset is not None and offset % timedelta(hours=1) == timedelta(0) for offset in offsets)
    return "hour" if whole_hours else "minute"
