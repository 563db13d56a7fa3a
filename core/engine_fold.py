"""Engine counters to increases: one state per engine, one call per sample, deltas per minute (``core.fold``).

``core.engine_spread`` defines each measure.
"""

from __future__ import annotations

from dataclasses import dataclass

from core import fold as generic
from core.engine import COUNTERS, GAUGES, EngineKey, EngineSample
from core.engine_line import encode_line, parse_line, sample_id
from core.engine_spread import MEASURES, add_first, add_interval, carry
from core.fold import KEPT, FoldState, Rules, fold_reading
from core.spread import Minutes, Reading
from core.windows import epoch_ms

__all__ = [
    "KEPT", "MEASURES", "EngineDelta", "FoldState",
    "decode_state", "encode_line", "encode_state", "fold", "parse_line", "sample_id",
]  # fmt: skip

VERSIONS = {b"engine.v1": (12, 4), b"engine.v2": (21, 4), b"engine.v3": (len(COUNTERS), len(GAUGES))}
RULES = Rules(len(MEASURES), add_first, add_interval, carry, VERSIONS)


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
    after, minutes = fold_reading(state, sample.key, _reading(sample), RULES)
    return after, _deltas(sample.key, minutes)


def encode_state(state: FoldState) -> bytes:
    return generic.encode_state(state, RULES)


def decode_state(data: bytes) -> FoldState:
    """Raises BadInput for an unknown version or damaged bytes."""
    return generic.decode_state(data, RULES)


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
