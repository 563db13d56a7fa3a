"""One scrape of one engine in canonical names, and the line the stream reads of it. The fold lives in ``core.engine_fold``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from core.usage import Deployment

SCHEMA = "engine/1"

COUNTERS: tuple[str, ...] = (
    "prompt_tokens",
    "generation_tokens",
    "prompt_tokens_cached",
    "prompt_tokens_computed",
    "requests_finished",
    "steps",
    "iteration_tokens",
    "preemptions",
    "queue_us",
    "prefill_us",
    "decode_us",
    "inference_us",
    "prompt_tokens_external",
    "finished_prompt_tokens",
    "finished_generation_tokens",
    "n_answers",
    "n_requests",
    "rejections",
    "prefix_queries",
    "prefix_hits",
    "forward_us",
)
"""Canonical cumulative counters, all whole numbers: tokens, requests, engine steps, or request-microseconds.

``prompt_tokens_external`` (fetched from another engine's KV cache) is part of ``prompt_tokens_cached``. ``finished_…`` are what
finished requests say; the counters without that word also hold running and aborted work. ``n_answers`` / ``n_requests``: answers
asked for by finished requests, and those requests. ``prefix_queries`` / ``prefix_hits``: tokens looked up / found in the engine's
own prefix cache when scheduled. ``forward_us``: microseconds the GPU computed (SGLang alone tells)."""

GAUGES: tuple[str, ...] = (
    "running",
    "waiting",
    "kv_usage_ppm",
    "kv_capacity_tokens",
    "torch_reserved_mib",
    "torch_allocated_mib",
)
"""Canonical gauges, all whole numbers; KV use is in parts per million of capacity. ``torch_…``: MiB that PyTorch's allocator
holds on the GPUs of the engine's page, and those of them that tensors use; only ``deploy/engine_plugin`` tells."""


@dataclass(frozen=True, slots=True)
class EngineKey:
    """(scrape target, engine label, model id): the identity of one engine core."""

    target: str
    engine: str
    model_id: str


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What one page said of one engine at one instant. A name that was absent, NaN or a sentinel is absent here, never 0.

    ``created_at`` is the ``_created`` stamp of the engine's counters. ``watched_since`` is when this target was first
    asked: an engine born after it is counted from zero, one born before it starts with a baseline. ``interval_ms`` is
    the schedule the samples are taken on; a much longer silence is a gap.
    """

    key: EngineKey
    at: datetime
    deployment: Deployment
    node: str = ""
    process_started_at: datetime | None = None
    created_at: datetime | None = None
    watched_since: datetime | None = None
    interval_ms: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    info: Mapping[str, str] = field(default_factory=dict)


LINE_COLUMNS: tuple[str, ...] = (
    "sample_id",
    "target",
    "engine",
    "cluster",
    "namespace",
    "model_id",
    "node",
    "at_ms",
    "payload",
)
"""The ``engine`` topic's CSV columns. ``payload`` is compact JSON ``{"p": process_started_ms|null, "b": created_ms|null,
"w": watched_since_ms|null, "i": interval_ms|null, "c": {...}, "g": {...}}``, quoted with '"' and its quotes doubled.
``sample_id`` = target|engine|model_id|at_ms."""
