"""GPU rollups: what each physical GPU (or MIG instance) did and drew. ``core.gpu_spread`` defines each measure."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc

GPU_KEYS: tuple[str, ...] = ("cluster", "node", "gpu", "mig", "gpu_model", "pods")
"""``gpu`` is the UUID, ``pods`` the ``namespace/pod`` of all that share it: sums over all rows count a physical GPU once."""
GPU_MEASURES: tuple[str, ...] = (
    "energy_uj", "energy_seen_us", "observed_us", "gap_us",
    "engine_active_us", "engine_active_seen_us", "sm_active_us", "sm_active_seen_us", "util_us", "util_seen_us",
    "power_uj", "power_seen_us", "memory_used_mib_us", "memory_total_mib_us", "memory_seen_us", "samples", "resets",
)  # fmt: skip


def _key() -> Mapped[str]:
    return mapped_column(String, primary_key=True)


def _sum() -> Mapped[int]:
    return mapped_column(BigInteger, nullable=False, server_default="0")


class _GpuSums:
    cluster: Mapped[str] = _key()
    node: Mapped[str] = _key()
    gpu: Mapped[str] = _key()
    mig: Mapped[str] = _key()
    gpu_model: Mapped[str] = _key()
    pods: Mapped[str] = _key()
    energy_uj: Mapped[int] = _sum()
    energy_seen_us: Mapped[int] = _sum()
    observed_us: Mapped[int] = _sum()
    gap_us: Mapped[int] = _sum()
    engine_active_us: Mapped[int] = _sum()
    engine_active_seen_us: Mapped[int] = _sum()
    sm_active_us: Mapped[int] = _sum()
    sm_active_seen_us: Mapped[int] = _sum()
    util_us: Mapped[int] = _sum()
    util_seen_us: Mapped[int] = _sum()
    power_uj: Mapped[int] = _sum()
    power_seen_us: Mapped[int] = _sum()
    memory_used_mib_us: Mapped[int] = _sum()
    memory_total_mib_us: Mapped[int] = _sum()
    memory_seen_us: Mapped[int] = _sum()
    samples: Mapped[int] = _sum()
    resets: Mapped[int] = _sum()


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
