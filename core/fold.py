"""Samples of one source to increases per minute: the state, its order of time, and its bytes. What an interval means is a rule.

The sum of all increases is, at every moment, what the samples seen so far say in order of *their* time, not of arrival. A late
sample between two known ones splits their interval: the old split is taken back and the new one put, so single increases may be
negative while sums are not. The state holds the newest ``KEPT`` samples; one older than all of them, once earlier ones have been
let go, is ignored and counted, as is a repeated one.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from core.engine import EngineKey
from core.errors import BadInput
from core.spread import Known, Minutes, Reading

KEPT = 64


@dataclass(frozen=True, slots=True)
class FoldState:
    """What is remembered of one source: its newest samples in order of time.

    ``dropped`` counts samples let go, ``repeated`` those seen before, ``too_late`` those older than everything kept.
    """

    key: EngineKey
    readings: tuple[Reading, ...]
    dropped: int = 0
    repeated: int = 0
    too_late: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What the samples of one kind of source mean.

    ``first`` adds what the first sample ever seen says, ``interval`` what happened between two neighbours given what is known at
    the earlier one, ``carry`` tells what is known at the later one. ``versions``: first line of the state's bytes, the one
    written last, and how many counters and gauges such a state holds: new ones are added at the end and were unknown before.
    """

    width: int
    first: Callable[[Minutes, Reading], None]
    interval: Callable[[Minutes, Reading, Known, Reading], None]
    carry: Callable[[Reading, Known, Reading], Known]
    versions: dict[bytes, tuple[int, int]]

    @property
    def version(self) -> bytes:
        return next(reversed(self.versions))


def fold_reading(state: FoldState | None, key: EngineKey, reading: Reading, rules: Rules) -> tuple[FoldState, Minutes]:
    """Take one sample; return the new state and what to add. Raises BadInput when the sample is of another source."""
    if state is None:
        minutes: Minutes = {}
        rules.first(minutes, reading)
        return FoldState(key, (reading,)), minutes
    if state.key != key:
        raise BadInput(f"sample of {key} folded into the state of {state.key}", field="key")
    times = [r.at_ms for r in state.readings]
    place = bisect_left(times, reading.at_ms)
    if place < len(times) and times[place] == reading.at_ms:
        return replace(state, repeated=state.repeated + 1), {}
    if place == 0 and state.dropped:
        return replace(state, too_late=state.too_late + 1), {}
    after = (*state.readings[:place], reading, *state.readings[place:])
    minutes = _increases(after, place, rules)
    if place < len(times):
        _subtract(minutes, _increases(state.readings, place, rules), rules.width)
    return _kept(state, after, rules), minutes


def _increases(readings: Sequence[Reading], start: int, rules: Rules) -> Minutes:
    """What the samples from ``start`` on add, each against its predecessor."""
    minutes: Minutes = {}
    base: Known = _carried(readings, start - 1, rules) if start else ()
    for i in range(start, len(readings)):
        if i == 0:
            rules.first(minutes, readings[0])
        else:
            rules.interval(minutes, readings[i - 1], base, readings[i])
        base = readings[i].counters if i == 0 else rules.carry(readings[i - 1], base, readings[i])
    return minutes


def _carried(readings: Sequence[Reading], place: int, rules: Rules) -> Known:
    """The counters known at ``place``, walked from the oldest sample kept."""
    base = readings[0].counters
    for i in range(1, place + 1):
        base = rules.carry(readings[i - 1], base, readings[i])
    return base


def _subtract(minutes: Minutes, taken: Minutes, width: int) -> None:
    for key, vector in taken.items():
        row = minutes.setdefault(key, [0] * width)
        for i, value in enumerate(vector):
            row[i] -= value


def _kept(state: FoldState, readings: tuple[Reading, ...], rules: Rules) -> FoldState:
    excess = len(readings) - KEPT
    if excess <= 0:
        return replace(state, readings=readings)
    baked = replace(readings[excess], counters=_carried(readings, excess, rules))
    return replace(state, readings=(baked, *readings[excess + 1 :]), dropped=state.dropped + excess)


def encode_state(state: FoldState, rules: Rules) -> bytes:
    """The version, a line break, then JSON ``[[target, engine, model], [dropped, repeated, too_late], [reading, …]]`` with
    reading = ``[at_ms, [label, …], started_ms, created_ms, watched_ms, interval_ms, counters, gauges]``."""
    key = state.key
    rows = [
        [r.at_ms, r.labels, r.started_ms, r.created_ms, r.watched_ms, r.interval_ms, r.counters, r.gauges] for r in state.readings
    ]
    body = [[key.target, key.engine, key.model_id], [state.dropped, state.repeated, state.too_late], rows]
    return rules.version + b"\n" + json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def decode_state(data: bytes, rules: Rules) -> FoldState:
    """The inverse of ``encode_state``, of an older version too. Raises BadInput for an unknown version or damaged bytes."""
    version, _, body = data.partition(b"\n")
    known = rules.versions.get(version)
    if known is None:
        raise BadInput("unknown version of the fold's state", field="state", value=version, hint="start the job without state")
    now = rules.versions[rules.version]
    try:
        (target, engine, model_id), (dropped, repeated, too_late), rows = json.loads(body)
        readings = tuple(
            Reading(
                at, tuple(labels), started, created, watched, interval,
                _sized("counters", counters, known[0], now[0]), _sized("gauges", gauges, known[1], now[1]),
            )
            for at, labels, started, created, watched, interval, counters, gauges in rows
        )  # fmt: skip
    except (ValueError, TypeError, IndexError) as error:
        raise BadInput(f"damaged fold state: {error}", field="state", hint="start the job without state") from error
    return FoldState(EngineKey(target, engine, model_id), readings, dropped, repeated, too_late)


def _sized(what: str, values: Sequence[int | None], known: int, now: int) -> Known:
    if len(values) != known:
        raise ValueError(f"{len(values)} {what}, expected {known}")
    return (*values, *(None,) * (now - known))
