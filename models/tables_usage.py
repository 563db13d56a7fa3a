"""Rollups, stream bookkeeping and data faults. Keys are natural; an absent key part is '', never NULL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Index, SmallInteger, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc

USAGE_KEYS: tuple[str, ...] = (
    "cluster", "namespace", "model_id", "org", "team", "project", "user_id", "key_id",
    "service_tier", "status", "usage_source", "workload_class",
)  # fmt: skip
USAGE_MEASURES: tuple[str, ...] = (
    "requests", "input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h",
    "output", "output_reasoning", "prefill_context", "kv_work_x2", "duration_ms",
    "repeated_input", "operations", "end_unknown",
)  # fmt: skip


def _key() -> Mapped[str]:
    return mapped_column(String, primary_key=True)


def _sum() -> Mapped[int]:
    return mapped_column(BigInteger, nullable=False, server_default="0")


class _UsageKeys:
    cluster: Mapped[str] = _key()
    namespace: Mapped[str] = _key()
    model_id: Mapped[str] = _key()
    org: Mapped[str] = _key()
    team: Mapped[str] = _key()
    project: Mapped[str] = _key()
    user_id: Mapped[str] = _key()
    key_id: Mapped[str] = _key()
    service_tier: Mapped[str] = _key()
    status: Mapped[str] = _key()
    usage_source: Mapped[str] = _key()
    workload_class: Mapped[int] = mapped_column(SmallInteger, primary_key=True)


class UsageMeasures:
    requests: Mapped[int] = _sum()
    input_uncached: Mapped[int] = _sum()
    input_cache_read: Mapped[int] = _sum()
    input_cache_write_5m: Mapped[int] = _sum()
    input_cache_write_1h: Mapped[int] = _sum()
    output: Mapped[int] = _sum()
    output_reasoning: Mapped[int] = _sum()
    prefill_context: Mapped[int] = _sum()
    kv_work_x2: Mapped[int] = _sum()
    duration_ms: Mapped[int] = _sum()
    repeated_input: Mapped[int] = _sum()
    operations: Mapped[int] = _sum()
    end_unknown: Mapped[int] = _sum()


class UsageMinuteRow(_UsageKeys, UsageMeasures, Base):
    __tablename__ = "usage_minute"
    __table_args__ = (
        # Spend of a tenant is read on every loader commit.
        Index("ix_usage_minute_tenant", "org", "team", "minute"),
        {"postgresql_partition_by": "RANGE (minute)"},
    )
    minute: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class UsageHourRow(_UsageKeys, UsageMeasures, Base):
    __tablename__ = "usage_hour"
    __table_args__ = ({"postgresql_partition_by": "RANGE (hour)"},)
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class UsageDayRow(_UsageKeys, UsageMeasures, Base):
    __tablename__ = "usage_day"
    __table_args__ = ({"postgresql_partition_by": "RANGE (day)"},)
    day: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class UsageMonthRow(_UsageKeys, UsageMeasures, Base):
    __tablename__ = "usage_month"
    month: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class UsageLengthRow(Base):
    """Mergeable length histogram: requests and tokens per log bucket. ``kind`` is input or output; bucket b holds lengths
    in [2^(b/4), 2^((b+1)/4)), bucket -1 holds 0."""

    __tablename__ = "usage_length_hour"
    __table_args__ = ({"postgresql_partition_by": "RANGE (hour)"},)
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    cluster: Mapped[str] = _key()
    namespace: Mapped[str] = _key()
    model_id: Mapped[str] = _key()
    org: Mapped[str] = _key()
    kind: Mapped[str] = _key()
    bucket: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    requests: Mapped[int] = _sum()
    tokens: Mapped[int] = _sum()


ENGINE_MEASURES: tuple[str, ...] = (
    "prompt_tokens", "generation_tokens", "prompt_tokens_cached", "prompt_tokens_computed", "requests_finished",
    "steps", "iteration_tokens", "preemptions", "queue_us", "prefill_us", "decode_us", "inference_us",
    "prompt_tokens_external", "finished_prompt_tokens", "finished_generation_tokens", "n_answers", "n_requests", "rejections",
    "prefix_queries", "prefix_hits", "forward_us",
    "observed_us", "busy_us", "saturated_us", "gap_us", "running_us", "waiting_us", "kv_token_us", "kv_token_steps",
    "kv_seen_us", "kv_full_us", "kv_capacity_us", "torch_seen_us", "torch_reserved_mib_us", "torch_allocated_mib_us",
    "samples", "resets",
)  # fmt: skip


class _EngineSums:
    cluster: Mapped[str] = _key()
    namespace: Mapped[str] = _key()
    model_id: Mapped[str] = _key()
    target: Mapped[str] = _key()
    engine: Mapped[str] = _key()
    node: Mapped[str] = _key()
    prompt_tokens: Mapped[int] = _sum()
    generation_tokens: Mapped[int] = _sum()
    prompt_tokens_cached: Mapped[int] = _sum()
    prompt_tokens_computed: Mapped[int] = _sum()
    requests_finished: Mapped[int] = _sum()
    steps: Mapped[int] = _sum()
    iteration_tokens: Mapped[int] = _sum()
    preemptions: Mapped[int] = _sum()
    queue_us: Mapped[int] = _sum()
    prefill_us: Mapped[int] = _sum()
    decode_us: Mapped[int] = _sum()
    inference_us: Mapped[int] = _sum()
    prompt_tokens_external: Mapped[int] = _sum()
    finished_prompt_tokens: Mapped[int] = _sum()
    finished_generation_tokens: Mapped[int] = _sum()
    n_answers: Mapped[int] = _sum()
    n_requests: Mapped[int] = _sum()
    rejections: Mapped[int] = _sum()
    prefix_queries: Mapped[int] = _sum()
    prefix_hits: Mapped[int] = _sum()
    forward_us: Mapped[int] = _sum()
    observed_us: Mapped[int] = _sum()
    busy_us: Mapped[int] = _sum()
    saturated_us: Mapped[int] = _sum()
    gap_us: Mapped[int] = _sum()
    running_us: Mapped[int] = _sum()
    waiting_us: Mapped[int] = _sum()
    kv_token_us: Mapped[int] = _sum()
    kv_token_steps: Mapped[int] = _sum()
    kv_seen_us: Mapped[int] = _sum()
    kv_full_us: Mapped[int] = _sum()
    kv_capacity_us: Mapped[int] = _sum()
    torch_seen_us: Mapped[int] = _sum()
    torch_reserved_mib_us: Mapped[int] = _sum()
    torch_allocated_mib_us: Mapped[int] = _sum()
    samples: Mapped[int] = _sum()
    resets: Mapped[int] = _sum()


class EngineMinuteRow(_EngineSums, Base):
    """Increases of one engine's counters in one minute; see ``core.engine_fold`` for each measure."""

    __tablename__ = "engine_minute"
    __table_args__ = ({"postgresql_partition_by": "RANGE (minute)"},)
    minute: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class EngineHourRow(_EngineSums, Base):
    __tablename__ = "engine_hour"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class EngineDayRow(_EngineSums, Base):
    __tablename__ = "engine_day"
    day: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class AppliedFileRow(Base):
    """One delta file, applied exactly once; its row is written in the same transaction as its sums."""

    __tablename__ = "applied_file"
    __table_args__ = (Index("ix_applied_file_kind", "kind", "applied_at"),)
    name: Mapped[str] = mapped_column(String, primary_key=True)
    kind: Mapped[str] = mapped_column(String, nullable=False)
    row_count: Mapped[int] = mapped_column("rows", BigInteger, nullable=False)
    applied_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class SegmentProgressRow(Base):
    """Lines of a log segment the stream has read (each line once, duplicates included)."""

    __tablename__ = "segment_progress"
    topic: Mapped[str] = mapped_column(String, primary_key=True)
    segment: Mapped[str] = mapped_column(String, primary_key=True)
    lines: Mapped[int] = _sum()
    updated_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class DirtyWindowRow(Base):
    """A ledger quantum whose inputs changed since it was last closed."""

    __tablename__ = "dirty_window"
    cluster: Mapped[str] = _key()
    namespace: Mapped[str] = _key()
    model_id: Mapped[str] = _key()
    window_start: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    marked_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class StreamStateRow(Base):
    """One row per topic: how far the stream is. ``catching_up`` holds close, rules and recoveries."""

    __tablename__ = "stream_state"
    topic: Mapped[str] = mapped_column(String, primary_key=True)
    catching_up: Mapped[bool] = mapped_column(nullable=False)
    log_lines: Mapped[int] = _sum()
    read_lines: Mapped[int] = _sum()
    fingerprint: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    checkpoint: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    updated_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class QuarantineRow(Base):
    """A record that was not taken, with the reason; ``body`` holds its fields without any prompt or answer text."""

    __tablename__ = "quarantine"
    __table_args__ = (Index(None, "received_at"),)
    id: Mapped[str] = mapped_column(String, primary_key=True)
    received_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    source: Mapped[str] = mapped_column(String, nullable=False)
    place: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    field: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    body: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)


class DataFaultRow(Base):
    """Something that makes a number less true: a scrape gap, a vanished metric, an unmapped field."""

    __tablename__ = "data_fault"
    __table_args__ = (Index(None, "kind", "window_start"),)
    id: Mapped[str] = mapped_column(String, primary_key=True)
    kind: Mapped[str] = mapped_column(String, nullable=False)
    source: Mapped[str] = mapped_column(String, nullable=False)
    window_start: Mapped[datetime] = mapped_column(Utc, nullable=False)
    window_end: Mapped[datetime] = mapped_column(Utc, nullable=False)
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    noticed_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
