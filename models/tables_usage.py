"""Rollups, stream bookkeeping and data faults. Keys are natural; an absent key part is '', never NULL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Index, SmallInteger, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc, sum_of, text_key

USAGE_KEYS: tuple[str, ...] = (
    "cluster", "namespace", "model_id", "org", "team", "project", "user_id", "key_id",
    "service_tier", "status", "usage_source", "workload_class",
)  # fmt: skip
USAGE_MEASURES: tuple[str, ...] = (
    "requests", "input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h",
    "output", "output_reasoning", "prefill_context", "kv_work_x2", "duration_ms",
    "repeated_input", "operations", "end_unknown",
)  # fmt: skip


class _UsageKeys:
    cluster: Mapped[str] = text_key()
    namespace: Mapped[str] = text_key()
    model_id: Mapped[str] = text_key()
    org: Mapped[str] = text_key()
    team: Mapped[str] = text_key()
    project: Mapped[str] = text_key()
    user_id: Mapped[str] = text_key()
    key_id: Mapped[str] = text_key()
    service_tier: Mapped[str] = text_key()
    status: Mapped[str] = text_key()
    usage_source: Mapped[str] = text_key()
    workload_class: Mapped[int] = mapped_column(SmallInteger, primary_key=True)


class UsageMeasures:
    requests: Mapped[int] = sum_of()
    input_uncached: Mapped[int] = sum_of()
    input_cache_read: Mapped[int] = sum_of()
    input_cache_write_5m: Mapped[int] = sum_of()
    input_cache_write_1h: Mapped[int] = sum_of()
    output: Mapped[int] = sum_of()
    output_reasoning: Mapped[int] = sum_of()
    prefill_context: Mapped[int] = sum_of()
    kv_work_x2: Mapped[int] = sum_of()
    duration_ms: Mapped[int] = sum_of()
    repeated_input: Mapped[int] = sum_of()
    operations: Mapped[int] = sum_of()
    end_unknown: Mapped[int] = sum_of()


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
    cluster: Mapped[str] = text_key()
    namespace: Mapped[str] = text_key()
    model_id: Mapped[str] = text_key()
    org: Mapped[str] = text_key()
    kind: Mapped[str] = text_key()
    bucket: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    requests: Mapped[int] = sum_of()
    tokens: Mapped[int] = sum_of()


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
    cluster: Mapped[str] = text_key()
    namespace: Mapped[str] = text_key()
    model_id: Mapped[str] = text_key()
    target: Mapped[str] = text_key()
    engine: Mapped[str] = text_key()
    node: Mapped[str] = text_key()
    prompt_tokens: Mapped[int] = sum_of()
    generation_tokens: Mapped[int] = sum_of()
    prompt_tokens_cached: Mapped[int] = sum_of()
    prompt_tokens_computed: Mapped[int] = sum_of()
    requests_finished: Mapped[int] = sum_of()
    steps: Mapped[int] = sum_of()
    iteration_tokens: Mapped[int] = sum_of()
    preemptions: Mapped[int] = sum_of()
    queue_us: Mapped[int] = sum_of()
    prefill_us: Mapped[int] = sum_of()
    decode_us: Mapped[int] = sum_of()
    inference_us: Mapped[int] = sum_of()
    prompt_tokens_external: Mapped[int] = sum_of()
    finished_prompt_tokens: Mapped[int] = sum_of()
    finished_generation_tokens: Mapped[int] = sum_of()
    n_answers: Mapped[int] = sum_of()
    n_requests: Mapped[int] = sum_of()
    rejections: Mapped[int] = sum_of()
    prefix_queries: Mapped[int] = sum_of()
    prefix_hits: Mapped[int] = sum_of()
    forward_us: Mapped[int] = sum_of()
    observed_us: Mapped[int] = sum_of()
    busy_us: Mapped[int] = sum_of()
    saturated_us: Mapped[int] = sum_of()
    gap_us: Mapped[int] = sum_of()
    running_us: Mapped[int] = sum_of()
    waiting_us: Mapped[int] = sum_of()
    kv_token_us: Mapped[int] = sum_of()
    kv_token_steps: Mapped[int] = sum_of()
    kv_seen_us: Mapped[int] = sum_of()
    kv_full_us: Mapped[int] = sum_of()
    kv_capacity_us: Mapped[int] = sum_of()
    torch_seen_us: Mapped[int] = sum_of()
    torch_reserved_mib_us: Mapped[int] = sum_of()
    torch_allocated_mib_us: Mapped[int] = sum_of()
    samples: Mapped[int] = sum_of()
    resets: Mapped[int] = sum_of()


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
    lines: Mapped[int] = sum_of()
    updated_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class DirtyWindowRow(Base):
    """A ledger quantum whose inputs changed since it was last closed."""

    __tablename__ = "dirty_window"
    cluster: Mapped[str] = text_key()
    namespace: Mapped[str] = text_key()
    model_id: Mapped[str] = text_key()
    window_start: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    marked_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class StreamStateRow(Base):
    """One row per topic: how far the stream is. ``catching_up`` holds close, rules and recoveries."""

    __tablename__ = "stream_state"
    topic: Mapped[str] = mapped_column(String, primary_key=True)
    catching_up: Mapped[bool] = mapped_column(nullable=False)
    log_lines: Mapped[int] = sum_of()
    read_lines: Mapped[int] = sum_of()
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
