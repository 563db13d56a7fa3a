"""GPU readings through the real stream: their rollup is what the fold says, beside the engines', counted once over a kill."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from stream_world import World, expected_engine, now, samples

from core.engine import EngineKey
from core.engine_line import encode_gpu_line, encode_line
from core.fold import FoldState
from core.gpu import GpuSample
from core.gpu_fold import fold
from core.ports import LogBatch
from models.tables_gpu import GPU_KEYS, GPU_MEASURES

pytestmark = [pytest.mark.flink, pytest.mark.db]


def readings(gpu: str, count: int) -> list[GpuSample]:
    """15 s apart: pods come and go, the counter resets once, shares are missing at times."""
    base = now().replace(microsecond=0) - timedelta(hours=1)
    found = []
    for i in range(count):
        gauges = {
            "engine_active_ppm": 10_000 * (i % 90),
            "power_mw": 300_000 + i,
            "memory_used_mib": i,
            "memory_total_mib": 24_000,
        }
        if i % 7 == 0:
            del gauges["engine_active_ppm"]
        found.append(
            GpuSample(
                "http://dcgm:9400/metrics", gpu, base + timedelta(seconds=15 * i), "", "c,1", "n,1", "NVIDIA A10G",
                ("prod/a",) if i % 20 < 10 else ("prod/a", "prod/b,c"), None, 15_000,
                {"energy_uj": 4_500_000_000 * (i % (count // 2))}, gauges,
            )
        )  # fmt: skip
    return found


def expected(ordered: Iterable[GpuSample]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    states: dict[EngineKey, FoldState] = {}
    sums: dict[tuple[Any, ...], Counter[str]] = {}
    for one in ordered:
        states[one.key], deltas = fold(states.get(one.key), one)
        for delta in deltas:
            key = (delta.minute_ms, *(getattr(delta, name) for name in GPU_KEYS))
            sums.setdefault(key, Counter()).update(delta.measures)
    return {key: tuple(row[name] for name in GPU_MEASURES) for key, row in sums.items()}


def gpu_minutes(world: World) -> dict[tuple[Any, ...], tuple[int, ...]]:
    columns = f"(extract(epoch FROM minute) * 1000)::bigint, {', '.join(GPU_KEYS)}, {', '.join(GPU_MEASURES)}"
    width = 1 + len(GPU_KEYS)
    return {row[:width]: row[width:] for row in world.rows(f"SELECT {columns} FROM gpu_minute")}


def test_gpus_and_engines_leave_one_fold_into_their_own_rollups(tmp_path: Path, db: Engine, db_url: str) -> None:
    world = World(tmp_path, db_url, db)
    gpus, engines = [*readings("GPU-1", 80), *readings("GPU-2", 60)], samples("0", 60)
    lines = [*(encode_gpu_line(one) for one in gpus), *(encode_line(one) for one in engines)]
    random.Random(7).shuffle(lines)
    log = world.log()
    for part in (lines[:120], lines[120:]):
        log.append("engine", LogBatch(part))
        log.flush()
    log.close()
    try:
        world.start(until_idle=False)
        world.wait(lambda: world.applied_lines() >= len(lines) // 2, what="half of the lines are applied")
        world.kill_job()
        world.wait(lambda: world.applied_lines() == len(lines), what="every line is applied")
    finally:
        world.end()
    assert gpu_minutes(world) == expected(gpus)
    assert world.engine_minutes() == expected_engine(engines)
