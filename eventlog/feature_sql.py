"""Features of requests from the raw archive: DuckDB queries that give what ``core.features.hour_features`` gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from core.errors import NotFound
from core.features import (
    ANSWERED,
    HOUR_MS,
    MEASURES,
    SESSION_MS,
    SIMILAR_MS,
    SIMILAR_PERCENT,
    TURNS,
    EdgeKey,
    FeatureFacts,
    FeatureKey,
    HourFeatures,
    similar_prompts,
)
from core.lengths import bucket_sql
from core.minhash import PERMUTATIONS
from core.windows import epoch_ms, from_epoch_ms
from eventlog.archive_manifest import archive_folder
from eventlog.archive_sql import query_archive

COPIES_MS = HOUR_MS
"""Copies of a request may bear times so far apart."""
_KEYS = "cluster, namespace, model_id, org, team"
_BOTH = "input_tokens > 0 AND output_tokens > 0"


def _said(name: str, value: str) -> str:
    """A member of the full record, which is parsed only where it is there."""
    return f"CASE WHEN contains(record, '\"{name}\"') THEN {value} END"


_SAID = {
    "session": _said("session_id", "json_extract_string(record, '$.session_id')"),
    "called": _said("tools", "CAST(json_extract(record, '$.tools') AS VARCHAR[])"),
    "ratio": "CAST(CAST("
    + _said("repeat_ratio", "json_extract_string(record, '$.repeat_ratio')")
    + " AS DECIMAL(38, 30)) AS DECIMAL(9, 4))",
    "places": _said("prefix_sketch", "json_array_length(record, '$.prefix_sketch')"),
    "sketch": _said("prefix_sketch", "CAST(json_extract(record, '$.prefix_sketch') AS BIGINT[])"),
}
"""Each query takes out of the record what it needs before copies are told apart: records themselves are not carried along."""
_ONE = f"""
raw AS (
  SELECT request_id, segment, line_no, finished_ms, {_KEYS}, status, usage_source <> 'missing' AS known,
         input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h AS total_in, input_cache_read, output,
         {{said}}
  FROM {{{{read}}}} WHERE finished_ms >= $since AND finished_ms < $until),
first AS (SELECT * FROM raw
          QUALIFY row_number() OVER (PARTITION BY request_id ORDER BY substr(segment, 10), segment, line_no) = 1),
one AS (
  SELECT *, CASE WHEN known THEN total_in END AS input_tokens, CASE WHEN known THEN input_cache_read END AS cached_tokens,
         CASE WHEN known THEN output END AS output_tokens
  FROM first WHERE status IN ({", ".join(f"'{status}'" for status in sorted(ANSWERED))}) AND finished_ms >= $from
    AND finished_ms < $end)
"""
_ROWS = """
WITH {one},
turns AS (
  SELECT request_id, row_number() OVER (PARTITION BY org, session ORDER BY finished_ms, request_id) AS turn
  FROM one WHERE session <> ''),
looked AS (
  SELECT *, CASE WHEN called IS NOT NULL OR ratio IS NOT NULL OR places IS NOT NULL THEN coalesce(called, []) END AS tools
  FROM one WHERE finished_ms >= $start)
SELECT {keys}, {measures} FROM looked LEFT JOIN turns USING (request_id) GROUP BY ALL ORDER BY ALL
"""
_EDGES = """
WITH {one},
calls AS (
  SELECT finished_ms, request_id, cluster, namespace, model_id, org, session, unnest(called) AS tool,
         generate_subscripts(called, 1) AS place
  FROM one WHERE session <> '' AND len(called) > 0),
steps AS (
  SELECT *, lag(tool, 1, '') OVER (PARTITION BY org, session ORDER BY finished_ms, request_id, place) AS before
  FROM calls)
SELECT cluster, namespace, model_id, org, before, tool, count(*) FROM steps WHERE finished_ms >= $start GROUP BY ALL ORDER BY ALL
"""
_SKETCHED = """
WITH {one}
SELECT request_id, finished_ms, {keys}, input_tokens, cached_tokens, sketch FROM one
WHERE len(sketch) = {permutations} AND input_tokens IS NOT NULL
ORDER BY cluster, namespace, model_id, finished_ms, request_id
"""


def _count(condition: str) -> str:
    return f"count(*) FILTER (WHERE {condition})"


def _turn_counts() -> Iterator[str]:
    lowest = 1
    for _, highest in TURNS:
        yield _count(f"turn BETWEEN {lowest} AND {highest}")
        lowest = highest + 1


_SQL_MEASURES = (
    "count(*)", "count(input_tokens)", "sum(input_tokens)", "sum(cached_tokens)", "sum(output_tokens)", _count(_BOTH),
    f"sum(({bucket_sql('input_tokens')}) - ({bucket_sql('output_tokens')})) FILTER (WHERE {_BOTH})",
    "count(turn)", *_turn_counts(), "count(tools)", _count("len(tools) > 0"), "sum(len(tools))",
    "count(ratio)", "sum(CAST(ratio * 10000 AS BIGINT))",
    _count(f"places = {PERMUTATIONS} AND input_tokens IS NOT NULL"),
    f"sum(input_tokens) FILTER (WHERE places = {PERMUTATIONS})",
)  # fmt: skip
"""In the order of ``core.features.MEASURES``, of which the last two are not asked of SQL."""


def archived_features(data_dir: Path, hour: datetime, percent: int = SIMILAR_PERCENT) -> HourFeatures:
    """``core.features.hour_features`` of the archived records, of an hour that starts at ``hour``."""
    rows = _sums(data_dir, hour)
    similar, shareable = MEASURES.index("similar_requests"), MEASURES.index("shareable_tokens")
    for fact, saved in similar_prompts(_sketched(data_dir, hour), epoch_ms(hour), percent):
        rows[fact.key][similar] += 1
        rows[fact.key][shareable] += saved
    return HourFeatures({key: tuple(sums) for key, sums in rows.items()}, _edges(data_dir, hour))


def _sums(data_dir: Path, hour: datetime) -> dict[FeatureKey, list[int]]:
    measures = ", ".join(f"CAST(coalesce({value}, 0) AS BIGINT)" for value in _SQL_MEASURES)
    found = _query(data_dir, _ROWS, ("session", "called", "ratio", "places"), hour, keys=_KEYS, measures=measures)
    return {row[:5]: [*map(int, row[5:]), 0, 0] for row in found}


def _edges(data_dir: Path, hour: datetime) -> dict[EdgeKey, int]:
    return {row[:6]: int(row[6]) for row in _query(data_dir, _EDGES, ("session", "called"), hour)}


def _sketched(data_dir: Path, hour: datetime) -> Iterator[FeatureFacts]:
    found = _query(data_dir, _SKETCHED, ("sketch",), hour, keys=_KEYS, permutations=str(PERMUTATIONS))
    for request_id, finished_ms, *key, tokens, cached, sketch in found:
        yield FeatureFacts(
            request_id=request_id, finished_ms=finished_ms, key=tuple(key), input_tokens=tokens, cached_tokens=cached,
            sketch=tuple(sketch),
        )  # fmt: skip


def _query(data_dir: Path, sql: str, needed: Sequence[str], hour: datetime, **parts: str) -> Iterator[tuple[Any, ...]]:
    start, end = epoch_ms(hour), epoch_ms(hour) + HOUR_MS
    earliest = start - (SIMILAR_MS if sql is _SKETCHED else SESSION_MS)
    times = {"from": earliest, "end": end, "since": earliest - COPIES_MS, "until": end + COPIES_MS}
    if "$start" in sql:
        times["start"] = start
    said = ", ".join(f"{_SAID[name]} AS {name}" for name in needed)
    first, last = (from_epoch_ms(times[name]).date() for name in ("since", "until"))
    return query_archive(data_dir, "usage", sql.format(one=_ONE.format(said=said), **parts), times, first, last)


def file_span_ms(data_dir: Path, name: str) -> tuple[int, int] | None:
    """Earliest and latest ``finished_ms`` in a usage file of the archive; None when retention has removed it."""
    try:
        told = pq.read_metadata(archive_folder(data_dir, "usage") / name)
    except FileNotFoundError:
        return None
    place = told.schema.names.index("finished_ms")
    spans = [told.row_group(n).column(place).statistics for n in range(told.num_row_groups)]
    if not spans or any(span is None or not span.has_min_max for span in spans):
        raise NotFound(f"{name} does not say from when to when its requests are", hint="Pack the day again from the log.")
    return min(span.min for span in spans), max(span.max for span in spans)
