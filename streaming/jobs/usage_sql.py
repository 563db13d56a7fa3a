"""The usage half of the job as SQL text: dedupe, minute slices, length buckets, read progress. Meaning: ``core.usage.slices``."""

from __future__ import annotations

from core.lengths import bucket_sql
from core.usage import LINE_COLUMNS
from models.tables_usage import USAGE_KEYS, USAGE_MEASURES

WINDOW = "INTERVAL '1' SECOND"
LENGTH_KEYS: tuple[str, ...] = ("cluster", "namespace", "model_id", "org", "team")
BIGINT_COLUMNS: frozenset[str] = frozenset(LINE_COLUMNS) - {
    "request_id", "cluster", "namespace", "model_id", "org", "team", "project", "user_id", "key_id",
    "service_tier", "status", "usage_source",
}  # fmt: skip
USAGE_COLUMNS: tuple[tuple[str, str], ...] = tuple(
    (name, "BIGINT" if name in BIGINT_COLUMNS else "STRING") for name in (*LINE_COLUMNS, "segment")
)

_PASSED = ("input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h")
_TOTAL_IN = "(input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h)"


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def views() -> tuple[str, ...]:
    """From ``usage_log`` (the lines, with the processing time ``pt``) to ``usage_slice`` and ``usage_length``."""
    return (_once(), _whole(), _spread(), _slice(), _length())


def _once() -> str:
    """The first line of each request id; a ``counted`` = 0 line takes the id's place and then counts nothing."""
    return f"""CREATE TEMPORARY VIEW usage_once AS
SELECT {_names(LINE_COLUMNS)}, pt, first_ms / 60000 AS m1, finished_ms / 60000 AS m2, {_TOTAL_IN} AS total_in
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY request_id ORDER BY pt) AS nth FROM usage_log)
WHERE nth = 1 AND counted = 1"""


def _whole() -> str:
    """Requests whose first token and finish share a minute: one slice, no arithmetic."""
    return f"""CREATE TEMPORARY VIEW usage_whole AS
SELECT pt, m2 * 60000 AS minute_ms, {_names(USAGE_KEYS)}, CAST(1 AS BIGINT) AS requests, {_names(_PASSED)},
  `output`, output_reasoning, input_uncached * total_in AS prefill_context,
  `output` * (2 * total_in + `output`) AS kv_work_x2, duration_ms, repeated_input
FROM usage_once WHERE m1 = m2"""


def _spread() -> str:
    """Requests that cross a minute, one row a minute: ``o1`` and ``o2`` are the output before and after the slice."""
    cut = "`output` * (LEAST((m1 + i) * 60000, finished_ms) - first_ms) / (finished_ms - first_ms)"
    before = "`output` * (GREATEST((m1 + i - 1) * 60000, first_ms) - first_ms) / (finished_ms - first_ms)"
    return f"""CREATE TEMPORARY VIEW usage_spread AS
SELECT o.*, m1 + i - 1 AS m, {before} AS o1, {cut} AS o2
FROM usage_once AS o
CROSS JOIN UNNEST(SPLIT(REPEAT(',', CAST(m2 - m1 AS INT)) || 'x', ',')) WITH ORDINALITY AS s(x, i)
WHERE m1 < m2"""


def _slice() -> str:
    first = ", ".join(f"CASE WHEN m = m1 THEN {name} ELSE 0 END AS {name}" for name in _PASSED)
    reasoning = "CASE WHEN `output` = 0 THEN 0 ELSE output_reasoning * o2 / `output` - output_reasoning * o1 / `output` END"
    return f"""CREATE TEMPORARY VIEW usage_slice AS
SELECT * FROM usage_whole UNION ALL
SELECT pt, m * 60000 AS minute_ms, {_names(USAGE_KEYS)}, CASE WHEN m = m2 THEN 1 ELSE 0 END AS requests, {first},
  o2 - o1 AS `output`, {reasoning} AS output_reasoning,
  CASE WHEN m = m1 THEN input_uncached * total_in ELSE 0 END AS prefill_context,
  o2 * (2 * total_in + o2) - o1 * (2 * total_in + o1) AS kv_work_x2, CASE WHEN m = m2 THEN duration_ms ELSE 0 END AS duration_ms,
  CASE WHEN m = m1 THEN repeated_input ELSE 0 END AS repeated_input
FROM usage_spread"""


def _length() -> str:
    """Both lengths of each request whose counts are known: a missing count is not a length of zero.

    Naming every column keeps the planner from pruning this branch's copy of ``usage_once``: only equal plans share one operator,
    and two dedupe operators would cost twice and could keep different duplicates.
    """
    every = " AND ".join(f"`{name}` IS NOT NULL" for name in LINE_COLUMNS)
    halves = " UNION ALL ".join(
        f"SELECT pt, finished_ms / 3600000 * 3600000 AS hour_ms, {_names(LENGTH_KEYS)}, '{kind}' AS kind, {column} AS tokens "
        f"FROM usage_once WHERE usage_source <> 'missing' AND {every}"
        for kind, column in (("input", "total_in"), ("output", "`output`"))
    )
    return f"""CREATE TEMPORARY VIEW usage_length AS
SELECT pt, hour_ms, {_names(LENGTH_KEYS)}, kind, {bucket_sql("tokens")} AS bucket, tokens FROM ({halves})"""


def inserts() -> tuple[str, ...]:
    """One statement a delta kind; the windows are of processing time, so no row is ever late."""
    sums = ", ".join(f"SUM(`{name}`)" for name in USAGE_MEASURES)
    keys, length = _names(("minute_ms", *USAGE_KEYS)), _names(("hour_ms", *LENGTH_KEYS, "kind", "bucket"))
    return (
        f"INSERT INTO usage_delta SELECT {keys}, {sums} FROM {_tumble('usage_slice')} GROUP BY window_start, window_end, {keys}",
        f"INSERT INTO length_delta SELECT {length}, COUNT(*), SUM(tokens) FROM {_tumble('usage_length')} "
        f"GROUP BY window_start, window_end, {length}",
        *(
            f"INSERT INTO progress_delta SELECT '{topic}', segment, COUNT(*) FROM {_tumble(f'{topic}_log')} "
            "GROUP BY window_start, window_end, segment"
            for topic in ("usage", "engine")
        ),
    )


def _tumble(view: str) -> str:
    return f"TABLE(TUMBLE(TABLE {view}, DESCRIPTOR(pt), {WINDOW}))"
