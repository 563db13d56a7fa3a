"""Questions to the raw archive, answered by DuckDB over the Parquet files the manifest names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

import duckdb

from core.usage import LINE_COLUMNS, MAX_DURATION
from core.windows import Window, epoch_ms, from_epoch_ms
from eventlog.archive_manifest import files_of

MINUTE_KEYS: tuple[str, ...] = (
    "cluster", "namespace", "model_id", "org", "team", "project", "user_id", "key_id",
    "service_tier", "status", "usage_source", "workload_class",
)  # fmt: skip
MINUTE_MEASURES: tuple[str, ...] = (
    "requests", "input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h",
    "output", "output_reasoning", "prefill_context", "kv_work_x2", "duration_ms",
)  # fmt: skip
"""The columns of ``usage_minute``; a test holds them equal to the table's."""

_READ = "read_parquet({files}, hive_partitioning = false)"
_FIRST_OF_EACH = "QUALIFY row_number() OVER (PARTITION BY request_id ORDER BY substr(segment, 10), segment, line_no) = 1"


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """One row of ``usage_minute``: ``keys`` in the order of MINUTE_KEYS, ``measures`` in that of MINUTE_MEASURES."""

    minute: datetime
    keys: tuple[str | int, ...]
    measures: tuple[int, ...]


_MINUTES_SQL = """
WITH raw AS (SELECT * FROM {read}),
touched AS (SELECT DISTINCT request_id FROM raw WHERE finished_ms >= $start AND first_ms < $end),
one AS (SELECT * FROM raw WHERE request_id IN (SELECT request_id FROM touched) {first_of_each}),
cut AS (
  SELECT *, unnest(range(first_ms // 60000, finished_ms // 60000 + 1)) AS m,
         input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h AS total_in
  FROM one),
placed AS (
  SELECT *, m = first_ms // 60000 AS is_first, m = finished_ms // 60000 AS is_last, finished_ms - first_ms AS span,
         greatest(m * 60000, first_ms) - first_ms AS lo, least((m + 1) * 60000, finished_ms) - first_ms AS hi
  FROM cut),
spread AS (
  SELECT *, CASE WHEN span = 0 THEN 0 ELSE output * lo // span END AS o1,
            CASE WHEN span = 0 THEN output ELSE output * hi // span END AS o2
  FROM placed),
shares AS (
  SELECT *, CASE WHEN output = 0 THEN 0 ELSE output_reasoning * o1 // output END AS r1,
            CASE WHEN output = 0 THEN 0 ELSE output_reasoning * o2 // output END AS r2
  FROM spread)
SELECT m * 60000 AS minute_ms, {keys},
       sum(is_last::BIGINT),
       sum(CASE WHEN is_first THEN input_uncached ELSE 0 END),
       sum(CASE WHEN is_first THEN input_cache_read ELSE 0 END),
       sum(CASE WHEN is_first THEN input_cache_write_5m ELSE 0 END),
       sum(CASE WHEN is_first THEN input_cache_write_1h ELSE 0 END),
       sum(o2 - o1), sum(r2 - r1),
       sum(CASE WHEN is_first THEN input_uncached * total_in ELSE 0 END),
       sum(o2 * (2 * total_in + o2) - o1 * (2 * total_in + o1)),
       sum(CASE WHEN is_last THEN duration_ms ELSE 0 END)
FROM shares
WHERE m * 60000 >= $start AND m * 60000 < $end
GROUP BY minute_ms, {keys}
ORDER BY minute_ms, {keys}
"""


def usage_minutes(data_dir: Path, window: Window, *, horizon: timedelta = timedelta(days=7)) -> list[MinuteRow]:
    """The rows of ``usage_minute`` for minutes that start in ``window``, recomputed from raw rows as ``core.usage.slices`` does.

    Each request id counts once, by the row that came first in the log; copies are looked for ``horizon`` to either side.
    """
    last = window.end + MAX_DURATION + horizon  # a request of the window may finish an hour after it
    files = files_of(data_dir, "usage", (window.start - horizon).date(), last.date())
    if not files:
        return []
    sql = _MINUTES_SQL.format(read=_read(files), first_of_each=_FIRST_OF_EACH, keys=", ".join(MINUTE_KEYS))
    with duckdb.connect() as connection:
        rows = connection.execute(sql, {"start": epoch_ms(window.start), "end": epoch_ms(window.end)}).fetchall()
    width = 1 + len(MINUTE_KEYS)
    return [MinuteRow(from_epoch_ms(row[0]), row[1:width], tuple(map(int, row[width:]))) for row in rows]


def contains_ids(data_dir: Path, ids: Collection[str], since: date | None = None) -> set[str]:
    """Which of these request ids the usage archive holds (in files of UTC dates on or after ``since``)."""
    files = files_of(data_dir, "usage", since)
    if not files or not ids:
        return set()
    sql = f"SELECT DISTINCT request_id FROM {_read(files)} WHERE request_id IN (SELECT unnest($ids::VARCHAR[]))"
    with duckdb.connect() as connection:
        return {row[0] for row in connection.execute(sql, {"ids": list(ids)}).fetchall()}


def ids_since(data_dir: Path, since: date) -> Iterator[tuple[str | int, ...]]:
    """Warm-up rows of the requests that finished on or after ``since`` (UTC): ``core.usage.LINE_COLUMNS`` with ``counted`` = 0,
    one per request id; ``core.usage.encode_line`` makes a line of each."""
    files = files_of(data_dir, "usage", since)
    if not files:
        return
    sql = f"SELECT {', '.join(LINE_COLUMNS[:-1])}, 0 FROM {_read(files)} {_FIRST_OF_EACH}"
    with duckdb.connect() as connection:
        cursor = connection.execute(sql)
        while rows := cursor.fetchmany(10_000):
            yield from rows


def _read(files: Collection[Path]) -> str:
    quoted = ", ".join("'" + str(path).replace("'", "''") + "'" for path in files)
    return _READ.format(files=f"[{quoted}]")
