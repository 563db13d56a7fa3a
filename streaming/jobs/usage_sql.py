"""The usage half of the job as SQL text: dedupe, minute slices, read progress. Meaning: ``core.usage.slices``.

Nothing is summed here: a window's state costs more per row than the row is worth, the loader sums whole files in columns.
"""

from __future__ import annotations

from core.usage import LINE_COLUMNS
from models.tables_usage import USAGE_KEYS, USAGE_MEASURES

WINDOW = "INTERVAL '1' SECOND"
LENGTH_KEYS: tuple[str, ...] = ("cluster", "namespace", "model_id", "org")
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
    """From ``usage_log`` (the lines, with the processing time ``pt``) to ``usage_slice``; all lines as ``log_line``."""
    return (_once(), _whole(), _spread(), _slice(), _log_line())


def _once() -> str:
    """The first line of each request id; a ``counted`` = 0 line takes the id's place and then counts nothing."""
    return f"""CREATE TEMPORARY VIEW usage_once AS
SELECT {_names(LINE_COLUMNS)}, first_ms / 60000 AS m1, finished_ms / 60000 AS m2, {_TOTAL_IN} AS total_in,
  usage_source <> 'missing' AS has_lengths
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY request_id ORDER BY pt) AS nth FROM usage_log)
WHERE nth = 1 AND counted = 1"""


def _whole() -> str:
    """Requests whose first token and finish share a minute: one slice, no arithmetic."""
    return f"""CREATE TEMPORARY VIEW usage_whole AS
SELECT m2 * 60000 AS minute_ms, {_names(USAGE_KEYS)}, CAST(1 AS BIGINT) AS requests, {_names(_PASSED)},
  `output`, output_reasoning, input_uncached * total_in AS prefill_context,
  `output` * (2 * total_in + `output`) AS kv_work_x2, duration_ms, repeated_input,
  {_operations("TRUE")},
  CASE WHEN has_lengths THEN total_in ELSE -1 END AS length_input,
  CASE WHEN has_lengths THEN `output` ELSE -1 END AS length_output
FROM usage_once WHERE m1 = m2"""


def _operations(is_last: str) -> str:
    return ", ".join(
        f"CASE WHEN {is_last} AND ends_operation = {end} THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END AS {name}"
        for name, end in (("operations", 1), ("end_unknown", -1))
    )


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
    """All slices; the finishing one carries both lengths, -1 where the counts are missing: that is not a length of zero."""
    first = ", ".join(f"CASE WHEN m = m1 THEN {name} ELSE 0 END AS {name}" for name in _PASSED)
    reasoning = "CASE WHEN `output` = 0 THEN 0 ELSE output_reasoning * o2 / `output` - output_reasoning * o1 / `output` END"
    return f"""CREATE TEMPORARY VIEW usage_slice AS
SELECT * FROM usage_whole UNION ALL
SELECT m * 60000 AS minute_ms, {_names(USAGE_KEYS)}, CASE WHEN m = m2 THEN 1 ELSE 0 END AS requests, {first},
  o2 - o1 AS `output`, {reasoning} AS output_reasoning,
  CASE WHEN m = m1 THEN input_uncached * total_in ELSE 0 END AS prefill_context,
  o2 * (2 * total_in + o2) - o1 * (2 * total_in + o1) AS kv_work_x2, CASE WHEN m = m2 THEN duration_ms ELSE 0 END AS duration_ms,
  CASE WHEN m = m1 THEN repeated_input ELSE 0 END AS repeated_input,
  {_operations("m = m2")},
  CASE WHEN m = m2 AND has_lengths THEN total_in ELSE -1 END AS length_input,
  CASE WHEN m = m2 AND has_lengths THEN `output` ELSE -1 END AS length_output
FROM usage_spread"""


def _log_line() -> str:
    halves = (f"SELECT pt, '{topic}' AS topic, segment FROM {topic}_log" for topic in ("usage", "engine"))
    return f"CREATE TEMPORARY VIEW log_line AS {' UNION ALL '.join(halves)}"


def inserts() -> tuple[str, ...]:
    """One statement a delta kind; the progress window is of processing time, so no line is ever late."""
    usage = _names(("minute_ms", *USAGE_KEYS, *USAGE_MEASURES, "length_input", "length_output"))
    return (
        f"INSERT INTO usage_delta SELECT {usage} FROM usage_slice",
        "INSERT INTO progress_delta SELECT topic, segment, COUNT(*) "
        f"FROM TABLE(TUMBLE(TABLE log_line, DESCRIPTOR(pt), {WINDOW})) "
        "GROUP BY window_start, window_end, topic, segment",
    )
