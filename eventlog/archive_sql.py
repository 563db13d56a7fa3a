"""Questions to the raw archive, answered by DuckDB over the Parquet files the manifest names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

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
    "repeated_input", "operations", "end_unknown",
)  # fmt: skip
"""The columns of ``usage_minute``; a test holds them equal to the table's."""

_RAW_COLUMNS = (
    "request_id", "segment", "line_no", "first_ms", "finished_ms", *MINUTE_KEYS,
    "input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h", "output", "output_reasoning",
    "duration_ms", "repeated_input", "ends_operation",
)  # fmt: skip
"""Named, never ``*``: a query that names all columns of a table it reads twice holds the full records in memory."""

_FETCH_ROWS = 10_000
_LATER_COLUMNS = {"ends_operation": "CASE WHEN status = 'error' THEN -1 ELSE 1 END"}
"""Columns of the ``usage`` topic that files of an earlier version do not have, and what they would hold."""
_NONE_OF_THEM = ", ".join(f"NULL::BIGINT AS {name}" for name in _LATER_COLUMNS)
_READ = {
    "usage": f"(SELECT {_NONE_OF_THEM} WHERE false UNION ALL BY NAME FROM read_parquet({{files}}, hive_partitioning = false, "
    "union_by_name = true))",
    "engine": "read_parquet({files}, hive_partitioning = false)",
}
_FIRST_OF_EACH = "QUALIFY row_number() OVER (PARTITION BY request_id ORDER BY substr(segment, 10), segment, line_no) = 1"


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """One row of ``usage_minute``: ``keys`` in the order of MINUTE_KEYS, ``measures`` in that of MINUTE_MEASURES."""

    minute: datetime
    keys: tuple[str | int, ...]
    measures: tuple[int, ...]


_MINUTES_SQL = """
WITH raw AS (SELECT {columns} FROM {read}),
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
       sum(is_last::BIGINT)::BIGINT,
       sum(CASE WHEN is_first THEN input_uncached ELSE 0 END)::BIGINT,
       sum(CASE WHEN is_first THEN input_cache_read ELSE 0 END)::BIGINT,
       sum(CASE WHEN is_first THEN input_cache_write_5m ELSE 0 END)::BIGINT,
       sum(CASE WHEN is_first THEN input_cache_write_1h ELSE 0 END)::BIGINT,
       sum(o2 - o1)::BIGINT, sum(r2 - r1)::BIGINT,
       sum(CASE WHEN is_first THEN input_uncached * total_in ELSE 0 END),
       sum(o2 * (2 * total_in + o2) - o1 * (2 * total_in + o1)),
       sum(CASE WHEN is_last THEN duration_ms ELSE 0 END)::BIGINT,
       sum(CASE WHEN is_first THEN repeated_input ELSE 0 END)::BIGINT,
       sum((is_last AND ends_operation = 1)::BIGINT)::BIGINT,
       sum((is_last AND ends_operation = -1)::BIGINT)::BIGINT
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
    sql = _MINUTES_SQL.format(
        read="{read}", columns=_selected(_RAW_COLUMNS), first_of_each=_FIRST_OF_EACH, keys=", ".join(MINUTE_KEYS)
    )  # fmt: skip
    parameters = {"start": epoch_ms(window.start), "end": epoch_ms(window.end)}
    rows = query_archive(data_dir, "usage", sql, parameters, (window.start - horizon).date(), last.date())
    width = 1 + len(MINUTE_KEYS)
    return [
        MinuteRow(minute, row[1:width], row[width:])
        for minute_ms, group in groupby(rows, key=itemgetter(0))
        for minute in (from_epoch_ms(minute_ms),)
        for row in group
    ]


def usage_sums(
    data_dir: Path, window: Window, *, horizon: timedelta = timedelta(days=7)
) -> dict[tuple[str, str, str], tuple[int, ...]]:
    """The rows of ``usage_minutes`` summed by (cluster, namespace, model id): measures in the order of MINUTE_MEASURES."""
    inner = _MINUTES_SQL.format(
        read="{read}", columns=_selected(_RAW_COLUMNS), first_of_each=_FIRST_OF_EACH, keys=", ".join(MINUTE_KEYS)
    )  # fmt: skip
    names = ", ".join(("minute_ms", *MINUTE_KEYS, *MINUTE_MEASURES))
    sums = ", ".join(f"sum({name})::HUGEINT" for name in MINUTE_MEASURES)
    sql = f"SELECT cluster, namespace, model_id, {sums} FROM ({inner}) AS part ({names}) GROUP BY ALL ORDER BY ALL"
    parameters = {"start": epoch_ms(window.start), "end": epoch_ms(window.end)}
    last = window.end + MAX_DURATION + horizon
    rows = query_archive(data_dir, "usage", sql, parameters, (window.start - horizon).date(), last.date())
    return {(row[0], row[1], row[2]): tuple(int(value) for value in row[3:]) for row in rows}


def contains_ids(data_dir: Path, ids: Collection[str], since: date | None = None) -> set[str]:
    """Which of these request ids the usage archive holds (in files of UTC dates on or after ``since``)."""
    if not ids:
        return set()
    sql = "SELECT DISTINCT request_id FROM {read} WHERE request_id IN (SELECT unnest($ids::VARCHAR[]))"
    return {row[0] for row in query_archive(data_dir, "usage", sql, {"ids": list(ids)}, since)}


def ids_since(data_dir: Path, since: date) -> Iterator[tuple[str | int, ...]]:
    """Warm-up rows of the requests that finished on or after ``since`` (UTC): ``core.usage.LINE_COLUMNS`` with ``counted`` = 0,
    one per request id; ``core.usage.encode_line`` makes a line of each."""
    sql = f"SELECT {_selected(LINE_COLUMNS[:-1])}, 0 FROM {{read}} {_FIRST_OF_EACH}"
    return query_archive(data_dir, "usage", sql, {}, since)


def _selected(columns: Collection[str]) -> str:
    later = {name: f"coalesce({name}, {value}) AS {name}" for name, value in _LATER_COLUMNS.items()}
    return ", ".join(later.get(name, name) for name in columns)


def query_archive(
    data_dir: Path,
    topic: str,
    sql: str,
    parameters: Mapping[str, object],
    first: date | None = None,
    last: date | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Rows of a query whose ``{read}`` stands for the topic's Parquet files of UTC dates ``first..last``; none without files.

    Files that retention removes while the query runs are not an error: it runs once more over those the manifest still names.
    The query must sort or group all its input, so that every file is read before its first row comes.
    """
    files = files_of(data_dir, topic, first, last)
    with duckdb.connect() as connection:
        try:
            cursor, rows = _begin(connection, topic, sql, parameters, files)
        except duckdb.IOException:
            listed = files_of(data_dir, topic, first, last)
            if listed == files:
                raise
            cursor, rows = _begin(connection, topic, sql, parameters, listed)
        while rows:
            yield from rows
            rows = cursor.fetchmany(_FETCH_ROWS)


def _begin(
    connection: duckdb.DuckDBPyConnection, topic: str, sql: str, parameters: Mapping[str, object], files: Collection[Path]
) -> tuple[duckdb.DuckDBPyConnection, list[tuple[Any, ...]]]:
    if not files:
        return connection, []
    quoted = ", ".join("'" + str(path).replace("'", "''") + "'" for path in files)
    cursor = connection.execute(sql.replace("{read}", _READ[topic].format(files=f"[{quoted}]")), dict(parameters))
    return cursor, cursor.fetchmany(_FETCH_ROWS)
