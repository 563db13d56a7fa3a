"""The fold of a gateway's own token counters (OTLP metrics): points of one series -> tokens by minute, each token once.

These are a cross-check of the usage records, never money. A series is one writer's counter of one token type. Points may be
cumulative since a start or the delta since the last point; both may be sent again. What a restarted process counted after its
last export is lost with it: the increase is at least what is returned.
"""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
LONGEST_FIRST_NS = HOUR_NS
"""A first cumulative point counts from its start when that is at most this long ago; an older one is where we began to watch."""


@dataclass(frozen=True, slots=True)
class CounterPoint:
    """``value`` tokens up to ``at_ns``, since ``start_ns`` (0: not said) when cumulative, since the last point when a delta."""

    start_ns: int
    at_ns: int
    value: int
    is_delta: bool


@dataclass(frozen=True, slots=True)
class SeriesState:
    """The last point counted of a series."""

    start_ns: int
    at_ns: int
    value: int


@dataclass(frozen=True, slots=True)
class Increase:
    """``tokens`` counted in [``from_ns``, ``to_ns``)."""

    tokens: int
    from_ns: int
    to_ns: int


def fold(state: SeriesState | None, point: CounterPoint) -> tuple[SeriesState, Increase | None]:
    """The series after ``point`` and what it added; None when it added nothing.

    A point no later than the last one adds nothing: it was sent again, or came late and is contained in the later cumulative
    value (a late delta cannot be told from one sent again and is not counted).
    """
    if state is not None and point.at_ns <= state.at_ns:
        return state, None
    after = SeriesState(point.start_ns, point.at_ns, point.value)
    tokens, from_ns = _delta(state, point) if point.is_delta else _cumulative(state, point)
    return after, Increase(tokens, min(from_ns, point.at_ns), point.at_ns) if tokens else None


def _delta(state: SeriesState | None, point: CounterPoint) -> tuple[int, int]:
    since_ns = 0 if state is None else state.at_ns
    return point.value, max(point.start_ns, since_ns) or point.at_ns


def _cumulative(state: SeriesState | None, point: CounterPoint) -> tuple[int, int]:
    if state is None:
        is_born_in_sight = point.start_ns > 0 and point.at_ns - point.start_ns <= LONGEST_FIRST_NS
        return (point.value, point.start_ns) if is_born_in_sight else (0, point.at_ns)
    if point.start_ns >= state.at_ns:
        return point.value, point.start_ns
    if point.value < state.value:
        return point.value, state.at_ns
    return point.value - state.value, state.at_ns


def by_minute(increase: Increase) -> tuple[tuple[int, int], ...]:
    """(minute in ms since the epoch, tokens) with tokens > 0, spread evenly over the time; they add up to the increase exactly.
    Over more than a day nothing is spread: all falls into the last minute."""
    start, end, tokens = increase.from_ns, increase.to_ns, increase.tokens
    span = end - start
    if span <= 0 or span > DAY_NS:
        return (((max(end - 1, 0)) // MINUTE_NS * 60_000, tokens),)
    found: list[tuple[int, int]] = []
    for minute in range(start // MINUTE_NS, (end - 1) // MINUTE_NS + 1):
        lo = max(minute * MINUTE_NS, start) - start
        hi = min((minute + 1) * MINUTE_NS, end) - start
        if part := tokens * hi // span - tokens * lo // span:
            found.append((minute * 60_000, part))
    return tuple(found)
