"""A data folder with a real log, a stream run as its own process, and what the rules in ``core`` say must come out."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from core.engine import EngineKey, EngineSample
from core.engine_fold import FoldState, fold
from core.engine_fold import encode_line as encode_engine
from core.lengths import bucket
from core.ports import LogBatch
from core.tokens import TokenCounts
from core.usage import LINE_COLUMNS, Deployment, encode_line, slices
from eventlog.spool import SpoolLog, SpoolSettings
from models.tables_usage import ENGINE_MEASURES, USAGE_KEYS, USAGE_MEASURES
from streaming.process import end_left_over

UsageLine = tuple[str | int, ...]
ROOT = Path(__file__).parents[2]


def now() -> datetime:
    return datetime.now(UTC)


def random_lines(seed: int, count: int, *, scenario: str) -> list[UsageLine]:
    """Lines with hard names, zero spans, minute crossings, missing counts; request ids are this scenario's own."""
    rnd = random.Random(seed)
    base = int((now() - timedelta(hours=2)).timestamp() * 1000)
    lines = []
    for i in range(count):
        duration = rnd.choice([0, 1, 900, 59_999, 61_000, 400_000, 3_600_000])
        finished = base + rnd.randrange(3_600_000)
        first = finished - (duration * rnd.choice([0, 1, 3, 4]) // 4)
        output = rnd.choice([0, 1, 7, 333, 100_000])
        source = rnd.choice(["exact", "exact", "estimated", "missing"])
        tokens = (rnd.randrange(200_000), rnd.choice([0, 512]), rnd.choice([0, 64]), rnd.choice([0, 9]), output, output // 3)
        lines.append(
            (
                f"{scenario}-{i}", first, finished, rnd.choice(["c", "c,1"]), "ns", rnd.choice(["模型/7b", "m-2"]),
                rnd.choice(["组织", "Nord, équipe"]), rnd.choice([" team", "NULL", "#1"]), "",
                f"user{i % 5}", "key ", rnd.choice(["P0", "P1"]),
                rnd.choice(["ok", "error", "aborted"]), source, 0, *((0,) * 6 if source == "missing" else tokens), duration,
                0 if source == "missing" else rnd.choice([0, sum(tokens[:4])]),
                rnd.choice([-1, 0, 1]), 1,
            )
        )  # fmt: skip
    return lines


def with_duplicates(lines: Sequence[UsageLine], seed: int) -> list[UsageLine]:
    """Each line once and a third of them again, shuffled."""
    rnd = random.Random(seed)
    mixed = [*lines, *rnd.sample(list(lines), len(lines) // 3)]
    rnd.shuffle(mixed)
    return mixed


def samples(engine: str, count: int) -> list[EngineSample]:
    """One engine's scrapes, 5 s apart, with a restart in the middle."""
    base = now().replace(microsecond=0) - timedelta(hours=1)
    key = EngineKey("http://gpu-1:8000/metrics", engine, "模型/7b")
    deployment = Deployment("c,1", "ns", "模型/7b")
    found = []
    for i in range(count):
        since = i if i < count // 2 else i - count // 2
        counters = {"prompt_tokens": 1000 * since, "generation_tokens": 37 * since, "steps": 11 * since}
        gauges = {"running": i % 4, "waiting": 0, "kv_usage_ppm": 100_000, "kv_capacity_tokens": 65_536}
        at = base + timedelta(seconds=5 * i)
        found.append(EngineSample(key, at, deployment, node="n,1", counters=counters, gauges=gauges))
    return found


def expected_minutes(lines: Iterable[UsageLine]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Rows of usage_minute by ``core.usage.slices``: (minute_ms, keys) -> measures; each request id once."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for line in {line[0]: line for line in lines}.values():
        row = dict(zip(LINE_COLUMNS, line, strict=True))
        tokens = _tokens(row)
        for part in slices(
            int(row["first_ms"]),
            int(row["finished_ms"]),
            tokens,
            int(row["duration_ms"]),
            int(row["repeated_input"]),
            int(row["ends_operation"]),
        ):
            key = (part.minute_ms, *(row[name] for name in USAGE_KEYS))
            for name in USAGE_MEASURES:
                sums[(key, name)] += getattr(part, name) if hasattr(part, name) else getattr(part.tokens, name)
    return _by_key(sums, USAGE_MEASURES)


def expected_lengths(lines: Iterable[UsageLine]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for line in {line[0]: line for line in lines}.values():
        row = dict(zip(LINE_COLUMNS, line, strict=True))
        if row["usage_source"] != "missing":
            tokens = _tokens(row)
            found[("input", bucket(tokens.input_total))] += 1
            found[("output", bucket(tokens.output))] += 1
    return found


def expected_engine(ordered: Iterable[EngineSample]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Rows of engine_minute by ``core.engine_fold``: (minute_ms, engine) -> measures."""
    states: dict[EngineKey, FoldState] = {}
    sums: Counter[tuple[Any, ...]] = Counter()
    for sample in ordered:
        states[sample.key], deltas = fold(states.get(sample.key), sample)
        for delta in deltas:
            for name, value in delta.measures.items():
                sums[((delta.minute_ms, delta.engine), name)] += value
    return _by_key(sums, ENGINE_MEASURES)


def _by_key(sums: Counter[tuple[Any, ...]], measures: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    return {key: tuple(sums[(key, name)] for name in measures) for key, _ in sums}


def _tokens(row: dict[str, Any]) -> TokenCounts:
    return TokenCounts(*(int(row[name]) for name in TokenCounts.__dataclass_fields__))


@dataclass
class World:
    """``settings`` are StreamSettings fields beside the two that are given; ``end`` kills whatever still runs."""

    data: Path
    url: str
    db: Engine
    settings: dict[str, Any] = field(default_factory=dict)
    _runs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def log(self, **settings: Any) -> SpoolLog:
        return SpoolLog(self.data / "log", SpoolSettings(reserve_bytes=1, reserve_percent=0, **settings), now)

    def append_usage(self, lines: Sequence[UsageLine], *, segments: int = 4) -> None:
        self.append("usage", [encode_line(line) for line in lines], segments)

    def append_engine(self, found: Sequence[EngineSample], *, segments: int = 4) -> None:
        self.append("engine", [encode_engine(sample) for sample in found], segments)

    def append(self, topic: Any, lines: list[str], segments: int) -> None:
        log = self.log()
        size = -(-len(lines) // segments)
        for start in range(0, len(lines), size):
            log.append(topic, LogBatch(lines[start : start + size]))
            log.flush()
        log.close()

    def start(self, *, until_idle: bool = True) -> subprocess.Popen[bytes]:
        fields = {"data_dir": str(self.data), "database_url": self.url, **self.settings}
        (self.data / "settings.json").write_text(json.dumps(fields))
        command = [
            sys.executable,
            "-m",
            "streaming.run",
            str(self.data / "settings.json"),
            *(["--until-idle"] if until_idle else []),
        ]
        with (self.data / "run.log").open("ab") as output:
            run = subprocess.Popen(command, cwd=self.data, stdout=output, stderr=output, start_new_session=True)
        self._runs.append(run)
        return run

    def run_until_idle(self) -> None:
        assert self.start().wait(timeout=600) == 0, self.told()

    def kill_job(self) -> None:
        os.killpg(json.loads((self.data / "run/stream-job.json").read_text())["group"], signal.SIGKILL)

    def wait(self, met: Callable[[], bool], *, what: str, timeout_s: float = 400.0) -> None:
        end = time.monotonic() + timeout_s
        while not met():
            if any(run.poll() not in (None, 0, -signal.SIGKILL) for run in self._runs) or time.monotonic() > end:
                raise AssertionError(f"not reached: {what}\n{self.told()}")
            time.sleep(0.2)

    def told(self) -> str:
        parts = [path for path in (self.data / "run.log", self.data / "run/flink.log") if path.exists()]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-4000:]}" for path in parts)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.db.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    def applied_lines(self) -> int:
        return int(self.rows("SELECT coalesce(sum(lines), 0) FROM segment_progress WHERE segment NOT LIKE 'warmup-%'")[0][0])

    def minutes(self, unit: str = "minute") -> dict[tuple[Any, ...], tuple[int, ...]]:
        keys, measures = ", ".join(USAGE_KEYS), ", ".join(USAGE_MEASURES)
        width = 1 + len(USAGE_KEYS)
        rows = self.rows(f"SELECT (extract(epoch FROM {unit}) * 1000)::bigint, {keys}, {measures} FROM usage_{unit}")
        return {row[:width]: row[width:] for row in rows}

    def lengths(self) -> Counter[tuple[str, int]]:
        rows = self.rows("SELECT kind, bucket, sum(requests)::int FROM usage_length_hour GROUP BY 1, 2")
        return Counter({(kind, b): n for kind, b, n in rows})

    def engine_minutes(self) -> dict[tuple[Any, ...], tuple[int, ...]]:
        rows = self.rows(
            f"SELECT (extract(epoch FROM minute) * 1000)::bigint, engine, {', '.join(ENGINE_MEASURES)} FROM engine_minute"
        )
        return {row[:2]: row[2:] for row in rows}

    def end(self) -> None:
        for run in self._runs:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        note = self.data / "run/stream-job.json"
        if note.exists():
            end_left_over(self.data / "run")
