"""Shapes and workload classes of archived requests: DuckDB queries that give what ``core.workload`` gives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np

from core.features import ANSWERED
from core.lengths import bucket_sql
from core.windows import Window, epoch_ms
from core.workload import FINE, NEW, TOOL_ENDS, UNSCORED, WorkloadModel
from core.workload_columns import UNKNOWN, Ints
from eventlog.archive_sql import query_archive

COPIES = timedelta(hours=1)
"""Copies of a request may bear times so far apart."""
_FEATURES = ("f_input", "f_output", "f_ratio", "f_cached", "f_tools")
_ENDS = ", ".join(f"'{end}'" for end in sorted(TOOL_ENDS))
_SHAPES = f"""
WITH raw AS (
  SELECT request_id, segment, line_no, finished_ms, status, usage_source, workload_class, input_cache_read, output,
         input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h AS total_in,
         coalesce(json_extract_string(record, '$.finish_reason'), '') AS finish,
         coalesce(json_array_length(record, '$.tools'), 0) AS tools
  FROM {{read}} WHERE finished_ms >= $since AND finished_ms < $until),
first AS (SELECT * FROM raw
          QUALIFY row_number() OVER (PARTITION BY request_id ORDER BY substr(segment, 10), segment, line_no) = 1),
shaped AS (
  SELECT request_id, finished_ms, workload_class,
         status IN ({", ".join(f"'{status}'" for status in sorted(ANSWERED))}) AND usage_source <> 'missing'
           AND total_in > 0 AS is_shaped,
         {bucket_sql("total_in")} AS f_input, {bucket_sql("output")} AS f_output,
         CASE WHEN output > 0 THEN f_input - f_output END AS f_ratio, 100 * input_cache_read // greatest(total_in, 1) AS f_cached,
         CASE WHEN tools > 0 OR finish IN ({_ENDS}) THEN 100 WHEN finish <> '' THEN 0 END AS f_tools
  FROM first WHERE finished_ms >= $start AND finished_ms < $end)
"""
_SAMPLE = f"""{_SHAPES}
SELECT {", ".join(f"coalesce({name}, {UNKNOWN})" for name in _FEATURES)} FROM shaped WHERE is_shaped{{only}}
ORDER BY hash(request_id), request_id LIMIT $rows
"""


def sample_shapes(data_dir: Path, window: Window, rows: int, only_class: int | None = None) -> Ints:
    """Shapes of at most ``rows`` archived requests that finished in the window, one a row (``core.workload_columns.shapes``),
    drawn by a hash of their ids: the same archive gives the same sample. ``only_class``: of those scored so when they came."""
    only = "" if only_class is None else f" AND workload_class = {int(only_class)}"
    found = list(_query(data_dir, _SAMPLE.format(read="{read}", only=only), window, rows=rows))
    return np.array(found, np.int64).reshape(len(found), len(_FEATURES))


def archived_classes(data_dir: Path, window: Window, model: WorkloadModel) -> Iterator[tuple[str, int, int]]:
    """(request id, class by ``model``, class its line bears) of the archived requests that finished in the window."""
    sql = f"{_SHAPES}SELECT request_id, {class_sql(model)}, workload_class FROM shaped ORDER BY request_id"
    yield from ((str(name), int(asked), int(held)) for name, asked, held in _query(data_dir, sql, window))


def class_sql(model: WorkloadModel) -> str:
    """``core.workload.score`` as an expression over ``is_shaped`` and the feature columns; the classes in the model's order."""
    ways = []
    for place, one in enumerate(model.classes):
        terms = (
            f"coalesce({weight} * ({FINE} * {name} - ({middle})) * ({FINE} * {name} - ({middle})), 0)"
            for name, weight, middle in zip(_FEATURES, model.weights, one.centre, strict=True)
        )
        inside = " AND ".join(
            f"coalesce({name} BETWEEN {low} AND {high}, true)"
            for name, low, high in zip(_FEATURES, one.low, one.high, strict=True)
        )
        ways.append(f"[{' + '.join(terms)}, {place}, CASE WHEN {inside} THEN {one.number} ELSE {NEW} END]")
    return f"CASE WHEN is_shaped THEN list_min([{', '.join(ways)}])[3] ELSE {UNSCORED} END"


def _query(data_dir: Path, sql: str, window: Window, **more: int) -> Iterator[tuple[int | str, ...]]:
    since, until = window.start - COPIES, window.end + COPIES
    times = {"start": window.start, "end": window.end, "since": since, "until": until}
    asked = {name: epoch_ms(at) for name, at in times.items()} | more
    return query_archive(data_dir, "usage", sql, asked, since.date(), until.date())
