"""One reading of one GPU in canonical names and units. ``core.gpu_fold`` is the fold, ``core.engine_line`` the log's line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from core.engine import EngineKey

GPU_SCHEMA = "gpu/1"

GPU_COUNTERS: tuple[str, ...] = ("energy_uj",)
"""Cumulative, whole microjoules: DCGM tells mJ since the driver was loaded, AMD µJ, Triton J since it started."""

GPU_GAUGES: tuple[str, ...] = (
    "engine_active_ppm",
    "sm_active_ppm",
    "util_ppm",
    "power_mw",
    "memory_used_mib",
    "memory_total_mib",
)
"""Whole numbers: shares in parts per million, milliwatts, MiB. ``engine_active`` is the share of time the graphics or compute
engine was active, ``sm_active`` the mean share of SMs with work, ``util`` the share of time any kernel ran."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What one page said of one physical GPU (or MIG instance, ``mig`` = its id), however many pods it was listed for.

    ``gpu`` is the UUID, ``pods`` the sorted ``namespace/pod`` of those that share it. A name that was absent or a sentinel is
    absent here, never 0. ``target`` is the exporter's address.
    """

    target: str
    gpu: str
    at: datetime
    mig: str = ""
    cluster: str = ""
    node: str = ""
    gpu_model: str = ""
    pods: tuple[str, ...] = ()
    watched_since: datetime | None = None
    interval_ms: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> EngineKey:
        """The identity of what is counted, in the engine topic's own columns."""
        return EngineKey(self.target, f"{self.gpu}/{self.mig}", "")
