"""Rollups anew from the raw archive, a UTC day at a time: the last resort when kept delta files are gone too.

The stream must stand still with everything consumed, for what lies in the log is not in the archive yet.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text

from core import engine_fold, gpu_fold
from core.engine import LINE_COLUMNS as ENGINE_LINE
from core.engine import EngineKey
from core.engine_fold import EngineDelta, FoldState, parse_line
from core.engine_line import is_gpu_line, parse_gpu_line
from core.errors import Conflict
from core.gpu_fold import GpuDelta
from core.lengths import bucket_sql
from core.windows import Window, epoch_ms
from eventlog import manifest
from eventlog.archive import newest_day, query_archive, usage_minutes
from models.partitions import ensure_months
from models.tables_gpu import GPU_KEYS, GPU_MEASURES
from models.tables_usage import ENGINE_MEASURES
from streaming import delta_files, load_sql
from streaming.jobs.usage_sql import LENGTH_KEYS
from streaming.loader import LOADER_LOCK
from streaming.plan import ENGINE_DIMENSIONS
from streaming.process import only_run

Row = tuple[Any, ...]
LOOK_BACK = timedelta(days=1)
"""Engine samples before the first day that make the state its first interval starts from."""
COPIES = timedelta(days=7)
"""How far a copy of a request may lie from it, as in ``eventlog.archive.usage_minutes``."""
_FORGET_MONTH = "DELETE FROM {rollup.table} WHERE {rollup.time} = date_trunc('month', CAST(:at AS timestamptz), 'UTC')"


def recompute(engine: Engine, data_dir: Path, since: date, now: datetime) -> int:
    """Replace every rollup row from the UTC day ``since`` on by what the archive says; returns the number of days.

    Raises Conflict while the stream runs or lines or delta files wait.
    """
    with only_run(data_dir / "run"):
        _require_idle(data_dir)
        newest = [day for topic in ("usage", "engine") if (day := newest_day(data_dir, topic)) is not None]
        days = max(0, (max(newest) - since).days + 1) if newest else 0
        engine_rows, gpu_rows = _engine_rows(data_dir, since)
        for day in (since + timedelta(days=i) for i in range(days)):
            start = datetime.combine(day, time(0), UTC)
            window = Window(start, start + timedelta(days=1))
            rows = {
                "usage": ((epoch_ms(row.minute), *row.keys, *row.measures) for row in usage_minutes(data_dir, window)),
                "length": _length_rows(data_dir, window),
                "engine": _within(engine_rows, window),
                "gpu": _within(gpu_rows, window),
            }
            _replace(engine, window, rows, now)
    return days


def _require_idle(data_dir: Path) -> None:
    log = data_dir / "log"
    waiting = [s for t in ("usage", "engine") for e in manifest.epochs(log, t) for s in manifest.segments(log, t, e)]
    if waiting or any(delta_files.finished(data_dir / "deltas", kind) for kind in delta_files.KINDS):
        raise Conflict("lines or delta files wait to be applied", hint="run `tokenfuse stream run --until-idle` first")


def _replace(engine: Engine, window: Window, rows: Mapping[str, Iterable[Row]], now: datetime) -> None:
    """One transaction a day: delete, stage, add, mark the day's quanta dirty."""
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOADER_LOCK})
        for kind, found in rows.items():
            connection.execute(text(load_sql.staging(kind)))
            _stage(connection, kind, found)
            rollups = load_sql.ROLLUPS[kind]
            ensure_months(connection, [window.start], load_sql.partitioned(kind))
            for rollup in rollups:
                if rollup.step_ms is None:
                    connection.execute(text(_FORGET_MONTH.format(rollup=rollup)), {"at": window.start})
                    connection.execute(text(load_sql.month_of_days(rollup, "usage_day")), {"at": window.start})
                    continue
                cut = f"DELETE FROM {rollup.table} WHERE {rollup.time} >= :start AND {rollup.time} < :end"
                connection.execute(text(cut), {"start": window.start, "end": window.end})
                connection.execute(text(load_sql.add(kind, rollup)))
            if kind in load_sql.MARKING:
                connection.execute(text(load_sql.mark_dirty(kind)), {"now": now})
        connection.execute(text("NOTIFY tokenfuse_loaded, 'recompute'"))


def _stage(connection: Connection, kind: str, rows: Iterable[Row]) -> None:
    cursor = connection.connection.cursor()
    try:
        with cursor.copy(load_sql.copy_in(kind)) as copy:
            for row in rows:
                line = io.StringIO()
                csv.writer(line, lineterminator="\n").writerow(row)
                copy.write(line.getvalue().encode())
    finally:
        cursor.close()


def _length_rows(data_dir: Path, window: Window) -> Iterator[Row]:
    day = window.start.date()
    total = "(input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h)"
    halves = " UNION ALL ".join(
        f"SELECT finished_ms // 3600000 * 3600000 AS hour_ms, {', '.join(LENGTH_KEYS)}, '{kind}' AS kind, {column} AS tokens "
        "FROM one WHERE usage_source <> 'missing' AND finished_ms >= $start AND finished_ms < $end"
        for kind, column in (("input", total), ("output", "output"))
    )
    query = f"""WITH one AS (SELECT * FROM {{read}}
          QUALIFY row_number() OVER (PARTITION BY request_id ORDER BY substr(segment, 10), segment, line_no) = 1)
        SELECT hour_ms, {", ".join(LENGTH_KEYS)}, kind, {bucket_sql("tokens")} AS bucket, count(*), sum(tokens)::BIGINT
        FROM ({halves}) GROUP BY ALL"""
    window_ms = {"start": epoch_ms(window.start), "end": epoch_ms(window.end)}
    return query_archive(data_dir, "usage", query, window_ms, day - COPIES, day + COPIES)


def _engine_rows(data_dir: Path, since: date) -> tuple[list[Row], list[Row]]:
    """Rows of ``engine_minute`` and ``gpu_minute`` from ``since`` on, by the folds over all archived samples in order of time."""
    engines, gpus = _Minutes(ENGINE_DIMENSIONS, ENGINE_MEASURES), _Minutes(GPU_KEYS, GPU_MEASURES)
    states: dict[EngineKey, FoldState] = {}
    first_ms = epoch_ms(datetime.combine(since, time(0), UTC))
    for line in _engine_lines(data_dir, since):
        fields = [str(value) for value in line]
        if is_gpu_line(fields):
            reading = parse_gpu_line(fields)
            states[reading.key], of_gpu = gpu_fold.fold(states.get(reading.key), reading)
            gpus.add(of_gpu, first_ms)
        else:
            sample = parse_line(fields)
            states[sample.key], of_engine = engine_fold.fold(states.get(sample.key), sample)
            engines.add(of_engine, first_ms)
    return engines.rows(), gpus.rows()


class _Minutes:
    """Deltas summed by minute and key."""

    def __init__(self, keys: Sequence[str], measures: Sequence[str]) -> None:
        self._keys, self._measures = keys, measures
        self._sums: dict[Row, Counter[str]] = defaultdict(Counter)

    def add(self, deltas: Iterable[EngineDelta | GpuDelta], first_ms: int) -> None:
        for delta in deltas:
            if delta.minute_ms >= first_ms:
                self._sums[(delta.minute_ms, *(getattr(delta, name) for name in self._keys))].update(delta.measures)

    def rows(self) -> list[Row]:
        return [(*key, *(sums[name] for name in self._measures)) for key, sums in self._sums.items()]


def _within(rows: Sequence[Row], window: Window) -> Iterator[Row]:
    return (row for row in rows if window.contains(datetime.fromtimestamp(row[0] / 1000, UTC)))


def _engine_lines(data_dir: Path, since: date) -> Iterator[Row]:
    query = f"SELECT {', '.join(ENGINE_LINE)} FROM {{read}} ORDER BY at_ms"
    return query_archive(data_dir, "engine", query, {}, since - LOOK_BACK)
