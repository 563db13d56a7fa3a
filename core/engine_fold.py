"""Engine counters to increases: one state per engine, one call per sample, deltas per minute.

The sum of all deltas is, at every moment, what the samples seen so far say in order of *their* time, not of arrival
(``core.engine_spread`` defines each measure). A late sample between two known ones splits their interval: its deltas take the
old split back and put the new one, so single deltas may be negative while sums are not. The state holds the newest ``KEPT``
samples; one older than all of them, once earlier ones have been let go, is ignored and counted, as is a repeated one.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.engine import COUNTERS, GAUGES, EngineKey, EngineSample
from core.engine_line import encode_line, parse_line, sample_id
from core.engine_spread import MEASURES, Known, Minutes, Reading, add_first, add_interval, carry
from core.errors import BadInput
from core.windows import epoch_ms

__all__ = [
    "KEPT", "MEASURES", "EngineDelta", "FoldState",
    "decode_state", "encode_line", "encode_state", "fold", "parse_line", "sample_id",
]  # fmt: skip

KEPT = 64
VERSION = b"engine.v2"
VERSIONS: Mapping[bytes, int] = {b"engine.v1": 12, VERSION: len(COUNTERS)}
"""State this program reads, and how many of COUNTERS it holds: new counters are added at the end and were unknown before."""


@dataclass(frozen=True, slots=True)
class FoldState:
    """What is remembered of one engine: its newest samples in order of time.

    ``dropped`` counts samples let go, ``repeated`` those seen before, ``too_late`` those older than everything kept.
    """

    key: EngineKey
    readings: tuple[Reading, ...]
    dropped: int = 0
    repeated: int = 0
    too_late: int = 0


@dataclass(frozen=True, slots=True)
class EngineDelta:
    """What to add to one row of ``engine_minute``. ``measures`` holds every name of ``MEASURES``."""

    minute_ms: int
    cluster: str
    namespace: str
    model_id: str
    target: str
    engine: str
    node: str
    measures: dict[str, int]


def fold(state: FoldState | None, sample: EngineSample) -> tuple[FoldState, tuple[EngineDelta, ...]]:
    """Take one sample of the state's engine; return the new state and what to add, ordered by minute.

    Raises BadInput when the sample belongs to another engine.
    """
    reading = _reading(sample)
    if state is None:
        minutes: Minutes = {}
        add_first(minutes, reading)
        return FoldState(sample.key, (reading,)), _deltas(sample.key, minutes)
    if state.key != sample.key:
        raise BadInput(f"sample of {sample.key} folded into the state of {state.key}", field="key")
    times = [r.at_ms for r in state.readings]
    place = bisect_left(times, reading.at_ms)
    if place < len(times) and times[place] == reading.at_ms:
        return _count(state, repeated=1), ()
    if place == 0 and state.dropped:
        return _count(state, too_late=1), ()
    after = (*state.readings[:place], reading, *state.readings[place:])
    minutes = _increases(after, place)
    if place < len(times):
        _subtract(minutes, _increases(state.readings, place))
    return _kept(state, after), _deltas(sample.key, minutes)


def _increases(readings: Sequence[Reading], start: int) -> Minutes:
    """What the samples from ``start`` on add, each against its predecessor."""
    minutes: Minutes = {}
    base: Known = _carried(readings, start - 1) if start else ()
    for i in range(start, len(readings)):
        if i == 0:
            add_first(minutes, readings[0])
        else:
            add_interval(minutes, readings[i - 1], base, readings[i])
        base = readings[i].counters if i == 0 else carry(readings[i - 1], base, readings[i])
    return minutes


def _carried(readings: Sequence[Reading], place: int) -> Known:
    """The counters known at ``place``, walked from the oldest sample kept."""
    base = readings[0].counters
    for i in range(1, place + 1):
        base = carry(readings[i - 1], base, readings[i])
    return base


def _subtract(minutes: Minutes, taken: Minutes) -> None:
    for key, vector in taken.items():
        bucket = minutes.setdefault(key, [0] * len(MEASURES))
        for i, value in enumerate(vector):
            bucket[i] -= value


def _kept(state: FoldState, readings: tuple[Reading, ...]) -> FoldState:
    excess = len(readings) - KEPT
    if excess <= 0:
        return FoldState(state.key, readings, state.dropped, state.repeated, state.too_late)
    oldest = readings[excess]
    counters = _carried(readings, excess)
    baked = Reading(
        oldest.at_ms, oldest.labels, oldest.started_ms, oldest.created_ms, oldest.watched_ms, oldest.interval_ms,
        counters, oldest.gauges,
    )  # fmt: skip
    return FoldState(state.key, (baked, *readings[excess + 1 :]), state.dropped + excess, state.repeated, state.too_late)


def _count(state: FoldState, *, repeated: int = 0, too_late: int = 0) -> FoldState:
    return FoldState(state.key, state.readings, state.dropped, state.repeated + repeated, state.too_late + too_late)


def _reading(sample: EngineSample) -> Reading:
    def ms(value: object) -> int | None:
        return None if value is None else epoch_ms(value)  # type: ignore[arg-type]

    return Reading(
        at_ms=epoch_ms(sample.at),
        labels=(sample.deployment.cluster, sample.deployment.namespace, sample.node),
        started_ms=ms(sample.process_started_at),
        created_ms=ms(sample.created_at),
        watched_ms=ms(sample.watched_since),
        interval_ms=sample.interval_ms,
        counters=tuple(sample.counters.get(name) for name in COUNTERS),
        gauges=tuple(sample.gauges.get(name) for name in GAUGES),
    )


def _deltas(key: EngineKey, minutes: Minutes) -> tuple[EngineDelta, ...]:
    return tuple(
        EngineDelta(minute, cluster, namespace, key.model_id, key.target, key.engine, node, dict(zip(MEASURES, row, strict=True)))
        for (minute, (cluster, namespace, node)), row in sorted(minutes.items())
        if any(row)
    )


def encode_state(state: FoldState) -> bytes:
    """``engine.v2``, a line break, then JSON ``[[target, engine, model], [dropped, repeated, too_late], [reading, …]]`` with
    reading = ``[at_ms, [cluster, namespace, node], started_ms, created_ms, watched_ms, interval_ms, counters, gauges]``."""
    key = state.key
    rows = [
        [r.at_ms, r.labels, r.started_ms, r.created_ms, r.watched_ms, r.interval_ms, r.counters, r.gauges] for r in state.readings
    ]
    body = [[key.target, key.engine, key.model_id], [state.dropped, state.repeated, state.too_late], rows]
    return VERSION + b"\n" + json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def decode_state(data: bytes) -> FoldState:
    """The inverse of ``encode_state``, of an older version too. Raises BadInput for an unknown version or damaged bytes."""
    version, _, body = data.partition(b"\n")
    known = VERSIONS.get(version)
    if known is None:
        raise BadInput("unknown version of the engine state", field="state", value=version, hint="start the job without state")
    try:
        (target, engine, model_id), (dropped, repeated, too_late), rows = json.loads(body)
        readings = tuple(
            Reading(
                at,
                (labels[0], labels[1], labels[2]),
                started,
                created,
                watched,
                interval,
                _counters(counters, known),
                tuple(gauges),
            )
            for at, labels, started, created, watched, interval, counters, gauges in rows
        )
    except (ValueError, TypeError, IndexError) as error:
        raise BadInput(f"damaged engine state: {error}", field="state", hint="start the job without state") from error
    return FoldState(EngineKey(target, engine, model_id), readings, dropped, repeated, too_late)


def _counters(values: Sequence[int | None], known: int) -> Known:
    if len(values) != known:
        raise ValueError(f"{len(values)} counters, expected {known}")
    return (*values, *(None,) * (len(COUNTERS) - known))
