"""Readings of one cumulative source in order of time, and how what lies between two of them is shared over minutes."""

from __future__ import annotations

from dataclasses import dataclass

from core.windows import MINUTE_MS

MIN_GAP_MS = 60_000
MAX_SPREAD_MS = 31 * 24 * 60 * MINUTE_MS
"""A source unseen for longer keeps its increase, spread over the last 31 days; the time before was not watched."""
MOST = 2**62
"""A product of gauge and time beyond this is not a measurement, would not fit its column, and is left out."""

Known = tuple[int | None, ...]
"""One value per counter, None where unknown."""
Labels = tuple[str, ...]
"""What a row says beside the source's own key: cluster, namespace, node of an engine; cluster, node, model, pods of a GPU."""
Minutes = dict[tuple[int, Labels], list[int]]
"""(minute start in ms, labels) -> one number per measure."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One sample in arrays: counters and gauges in their canonical order, None where absent. Times in ms since the epoch."""

    at_ms: int
    labels: Labels
    started_ms: int | None
    created_ms: int | None
    watched_ms: int | None
    interval_ms: int | None
    counters: Known
    gauges: tuple[int | None, ...]


def gap_threshold_ms(a: Reading, b: Reading) -> int:
    """A silence longer than three times the schedule, and than 60 s, is a gap."""
    return max(MIN_GAP_MS, 3 * max(a.interval_ms or 0, b.interval_ms or 0))


def bucket(minutes: Minutes, minute_ms: int, labels: Labels, width: int) -> list[int]:
    return minutes.setdefault((minute_ms, labels), [0] * width)


def spread(minutes: Minutes, labels: Labels, totals: dict[int, int], lo_ms: int, hi_ms: int, width: int) -> None:
    """Share each total evenly over ``(lo, hi]``: ``total*end//d - total*start//d`` telescopes to the total exactly.

    ``totals`` are by place among the ``width`` measures.
    """
    if not totals:
        return
    span = hi_ms - lo_ms
    if span <= 0:
        _add(bucket(minutes, hi_ms // MINUTE_MS * MINUTE_MS, labels, width), totals)
        return
    done = dict.fromkeys(totals, 0)
    for minute in range(lo_ms // MINUTE_MS, (hi_ms - 1) // MINUTE_MS + 1):
        offset = min((minute + 1) * MINUTE_MS, hi_ms) - lo_ms
        upto = {i: total * offset // span for i, total in totals.items()}
        _add(bucket(minutes, minute * MINUTE_MS, labels, width), {i: upto[i] - done[i] for i in totals})
        done = upto


def _add(row: list[int], parts: dict[int, int]) -> None:
    for i, part in parts.items():
        row[i] += part
