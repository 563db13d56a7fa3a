"""Who archived requests were charged to and what their sources said of them, in groups: what new identity rules are tried on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import orjson

from core.errors import Unavailable
from core.windows import Window, epoch_ms
from eventlog.archive_manifest import files_of

MEMORY_LIMIT = "512MB"
"""What DuckDB may hold; beyond it groups are put on disk."""
COPIES = timedelta(days=7)
"""How far a copy of a request may lie from it, as in ``eventlog.archive_sql.usage_minutes``."""
_FETCH_ROWS = 10_000
_SQL = """
WITH raw AS (
  SELECT request_id, segment, line_no, finished_ms, cluster, namespace, model_id, org, team, project, user_id, key_id,
         service_tier, status, input_uncached + input_cache_write_5m + input_cache_write_1h AS input,
         input_cache_read AS input_cached, output,
         CASE WHEN contains(record, '"identity":{') THEN json_extract(record, '$.raw.identity')::VARCHAR END AS identity,
         {model} AS model
  FROM read_parquet($files, hive_partitioning = false, union_by_name = true)),
one AS (
  SELECT * FROM raw
  QUALIFY row_number() OVER (PARTITION BY request_id ORDER BY substr(segment, 10), segment, line_no) = 1)
SELECT len(list_filter($starts::BIGINT[], lambda s: s <= finished_ms)), cluster, namespace, model_id, org, team, project, user_id,
       key_id, service_tier, status, coalesce(identity, ''), coalesce(model, ''),
       count(*)::BIGINT, sum(input)::BIGINT, sum(input_cached)::BIGINT, sum(output)::BIGINT
FROM one WHERE finished_ms >= $from_ms AND finished_ms < $to_ms
GROUP BY ALL
"""
_MODEL = "json_extract_string(record, '$.requested_model')"


class IdentityGroup(NamedTuple):
    """Requests that no rule can tell apart, with what they were charged as. ``record`` has the members that facts are read from;
    ``period`` counts the given instants that lie at or before their finish."""

    period: int
    record: dict[str, Any]
    status: str
    requests: int
    input: int
    input_cached: int
    output: int


def identity_groups(
    data_dir: Path, window: Window, starts_ms: Sequence[int] = (), *, with_model: bool = True
) -> Iterator[IdentityGroup]:
    """Groups of the requests that finished in ``window``, each request once; ``with_model``: by asked model too.

    Raises Unavailable when a file goes away meanwhile.
    """
    files = files_of(data_dir, "usage", (window.start - COPIES).date(), (window.end + COPIES).date())
    if not files:
        return
    sql = _SQL.replace("{model}", _MODEL if with_model else "''")
    values = {
        "files": [str(path) for path in files], "starts": list(starts_ms), "from_ms": epoch_ms(window.start),
        "to_ms": epoch_ms(window.end),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tokenfuse-identity") as folder:
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": folder,
            "threads": 2,
            "preserve_insertion_order": False,
        }
        with duckdb.connect(config=config) as connection:
            connection.execute("SET enable_progress_bar = false")  # it would go to standard output, which is JSON's
            try:
                cursor = connection.execute(sql, values)
            except duckdb.IOException as error:
                hint = "try again; `tokenfuse doctor` looks at the disk"
                raise Unavailable(
                    "files of the archive could not be read: retention may just have removed them", hint=hint
                ) from error
            while rows := cursor.fetchmany(_FETCH_ROWS):
                yield from map(_group, rows)


def _group(row: tuple[Any, ...]) -> IdentityGroup:
    period, cluster, namespace, model_id, org, team, project, user, key_id, tier, status, identity, model, *sums = row
    record = {
        "deployment": {"cluster": cluster, "namespace": namespace, "model_id": model_id},
        "tenant": {"org": org, "team": team, "project": project, "user": user, "key_id": key_id},
        "service_tier": tier,
        "requested_model": model,
    }
    if identity:
        record["raw"] = {"identity": orjson.loads(identity)}
    return IdentityGroup(period, record, status, *sums)
