"""Rollups recomputed from the raw archive are what the rules in ``core`` say of its records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from core.engine import EngineKey, EngineSample
from core.engine_fold import encode_line as encode_engine
from core.engine_fold import fold
from core.errors import Conflict
from core.ports import LogBatch
from core.tokens import TokenCounts
from core.usage import Deployment, encode_line, slices
from eventlog import manifest
from eventlog.archive import archive_segments
from eventlog.spool import SpoolLog, SpoolSettings
from streaming.load_sql import ROLLUPS
from streaming.recompute import recompute

pytestmark = pytest.mark.db

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
MIDNIGHT_MS = 1_795_996_800_000  # 2026-11-30T00:00:00Z
TOKENS = TokenCounts(5_000, 512, 0, 0, 4_321, 1_000)
FIRST_MS, FINISHED_MS = MIDNIGHT_MS - 100_000, MIDNIGHT_MS + 130_000


def samples() -> list[EngineSample]:
    key, deployment = EngineKey("t,1", "0", "m"), Deployment("c", "ns", "m")
    start = datetime(2026, 11, 29, 23, 59, tzinfo=UTC)
    counts = [0, 100, 150, 10, 30]
    return [
        EngineSample(key, start + timedelta(seconds=30 * i), deployment, counters={"prompt_tokens": n}, gauges={"running": 1})
        for i, n in enumerate(counts)
    ]


@pytest.fixture
def log(tmp_path: Path) -> SpoolLog:
    made = SpoolLog(tmp_path / "log", SpoolSettings(reserve_bytes=1, reserve_percent=0), lambda: NOW)
    names = ("c", "ns", "m", "o", "t", "", "u", "k", "P1", "ok", "exact", 0)
    counts = (5_000, 512, 0, 0, 4_321, 1_000)
    line = encode_line(("r1", FIRST_MS, FINISHED_MS, *names, *counts, 260_000, 0, 1))
    made.append("usage", LogBatch([line, line]))
    made.append("engine", LogBatch([encode_engine(sample) for sample in samples()]))
    made.flush()
    made.close()
    return made


def archive(data: Path) -> None:
    for topic in ("usage", "engine"):
        names = [found.segment for found in manifest.segments(data / "log", topic, "000001")]
        archive_segments(data, topic, "000001", names)


def sums(db: Engine, query: str) -> list[tuple[object, ...]]:
    with db.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


@pytest.mark.usefixtures("log")
def test_every_rollup_comes_back_and_twice_is_the_same(db: Engine, tmp_path: Path) -> None:
    archive(tmp_path)
    wanted = [(part.minute_ms, part.tokens.output, part.requests) for part in slices(FIRST_MS, FINISHED_MS, TOKENS, 260_000)]
    state, prompt = None, 0
    for sample in samples():
        state, deltas = fold(state, sample)
        prompt += sum(delta.measures["prompt_tokens"] for delta in deltas)
    for _ in range(2):
        assert recompute(db, tmp_path, NOW.date() - timedelta(days=2), NOW) == 3
        query = "SELECT (extract(epoch FROM minute) * 1000)::bigint, output, requests FROM usage_minute ORDER BY 1"
        assert sums(db, query) == wanted
        for rollup in ROLLUPS["usage"]:
            assert sums(db, f"SELECT sum(requests)::int, sum(output)::int FROM {rollup.table}") == [(1, 4_321)]
        assert sums(db, "SELECT kind, tokens FROM usage_length_hour ORDER BY 1") == [("input", 5_512), ("output", 4_321)]
        assert sums(db, "SELECT sum(prompt_tokens)::int FROM engine_minute") == [(prompt,)]


@pytest.mark.usefixtures("log")
def test_it_waits_until_the_log_is_consumed(db: Engine, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="wait to be applied"):
        recompute(db, tmp_path, NOW.date(), NOW)
