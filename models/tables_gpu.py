"""GPU rollups: what each physical GPU (or MIG instance) did and drew. ``core.gpu_spread`` defines each measure."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc, sum_of, text_key

GPU_KEYS: tuple[str, ...] = ("cluster", "node", "gpu", "mig", "gpu_model", "pods")
"""``gpu`` is the UUID, ``pods`` the ``namespace/pod`` of all that share it: sums over all rows count a physical GPU once."""
GPU_MEASURES: tuple[str, ...] = (
    "energy_uj", "energy_seen_us", "observed_us", "gap_us",
    "engine_active_us", "engine_active_seen_us", "sm_active_us", "sm_active_seen_us", "util_us", "util_seen_us",
    "power_uj", "power_seen_us", "memory_used_mib_us", "memory_total_mib_us", "memory_seen_us", "samples", "resets",
)  # fmt: skip


class _GpuSums:
    cluster: Mapped[str] = text_key()
    node: Mapped[str] = text_key()
    gpu: Mapped[str] = text_key()
    mig: Mapped[str] = text_key()
    gpu_model: Mapped[str] = text_key()
    pods: Mapped[str] = text_key()
    energy_uj: Mapped[int] = sum_of()
    energy_seen_us: Mapped[int] = sum_of()
    observed_us: Mapped[int] = sum_of()
    gap_us: Mapped[int] = sum_of()
    engine_active_us: Mapped[int] = sum_of()
    engine_active_seen_us: Mapped[int] = sum_of()
    sm_active_us: Mapped[int] = sum_of()
    sm_active_seen_us: Mapped[int] = sum_of()
    util_us: Mapped[int] = sum_of()
    util_seen_us: Mapped[int] = sum_of()
    power_uj: Mapped[int] = sum_of()
    power_seen_us: Mapped[int] = sum_of()
    memory_used_mib_us: Mapped[int] = sum_of()
    memory_total_mib_us: Mapped[int] = sum_of()
    memory_seen_us: Mapped[int] = sum_of()
    samples: Mapped[int] = sum_of()
    resets: Mapped[int] = sum_of()


class GpuMinuteRow(_GpuSums, Base):
    __tablename__ = "gpu_minute"
    __table_args__ = (
        # A close reads the GPUs of one node.
        Index("ix_gpu_minute_node", "cluster", "node", "minute"),
        {"postgresql_partition_by": "RANGE (minute)"},
    )
    minute: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class GpuHourRow(_GpuSums, Base):
    __tablename__ = "gpu_hour"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class GpuDayRow(_GpuSums, Base):
    __tablename__ = "gpu_day"
    day: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)
