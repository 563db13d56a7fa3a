"""GPU readings to increases per minute: one state per GPU and exporter (``core.fold``); measures in ``core.gpu_spread``."""

from __future__ import annotations

from dataclasses import dataclass

from core import fold as generic
from core.fold import FoldState, Rules, fold_reading
from core.gpu import GPU_COUNTERS, GPU_GAUGES, GpuSample
from core.gpu_spread import MEASURES, WIDTH, add_first, add_interval, carry
from core.spread import Reading
from core.windows import epoch_ms

RULES = Rules(WIDTH, add_first, add_interval, carry, {b"gpu.v1": (len(GPU_COUNTERS), len(GPU_GAUGES))})
MAX_PODS = 16
"""More pods than this on one GPU are listed as their number: a row's key must stay short."""


@dataclass(frozen=True, slots=True)
class GpuDelta:
    """What to add to one row of ``gpu_minute``. ``measures`` holds every name of ``MEASURES``."""

    minute_ms: int
    cluster: str
    node: str
    gpu: str
    mig: str
    gpu_model: str
    pods: str
    measures: dict[str, int]


def fold(state: FoldState | None, sample: GpuSample) -> tuple[FoldState, tuple[GpuDelta, ...]]:
    """Take one reading of the state's GPU; return the new state and what to add, ordered by minute.

    Raises BadInput when the reading is of another GPU or exporter.
    """
    after, minutes = fold_reading(state, sample.key, _reading(sample), RULES)
    deltas = (
        GpuDelta(minute, cluster, node, sample.gpu, sample.mig, model, pods, dict(zip(MEASURES, row, strict=True)))
        for (minute, (cluster, node, model, pods)), row in sorted(minutes.items())
        if any(row)
    )
    return after, tuple(deltas)


def encode_state(state: FoldState) -> bytes:
    return generic.encode_state(state, RULES)


def decode_state(data: bytes) -> FoldState:
    """Raises BadInput for an unknown version or damaged bytes."""
    return generic.decode_state(data, RULES)


def pods_text(pods: tuple[str, ...]) -> str:
    """``namespace/pod`` of those that share the GPU, joined by blanks."""
    return " ".join(pods) if len(pods) <= MAX_PODS else f"{len(pods)} pods"


def _reading(sample: GpuSample) -> Reading:
    return Reading(
        at_ms=epoch_ms(sample.at),
        labels=(sample.cluster, sample.node, sample.gpu_model, pods_text(sample.pods)),
        started_ms=None,
        created_ms=None,
        watched_ms=None if sample.watched_since is None else epoch_ms(sample.watched_since),
        interval_ms=sample.interval_ms,
        counters=tuple(sample.counters.get(name) for name in GPU_COUNTERS),
        gauges=tuple(sample.gauges.get(name) for name in GPU_GAUGES),
    )
