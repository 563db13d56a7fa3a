"""Sums of metered usage and of what the engines say of it, for any window of whole minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

from sqlalchemy import Connection, text

from core.tokens import TOKEN_FIELDS
from core.windows import Window
from models.coverage_repo import COVERAGE_KEYS, coverage_rows
from models.usage_keys import TIME_KEYS, USAGE_KEYS, Row, check_keys, columns_of, filter_sql, keys_sql
from models.usage_pieces import Level, coarsest_for
from models.usage_rollups import USAGE, rollup_rows

__all__ = ["COVERAGE_KEYS", "USAGE_KEYS", "coverage_rows", "usage_rows"]

COUNTS: dict[str, str] = {
    "requests": "TRUE", "errors": "a_status = 'error'", "aborted": "a_status = 'aborted'", "refused": "a_status = 'refused'",
    "estimated": "a_source = 'estimated'", "missing": "a_source = 'missing'",
}  # fmt: skip
_WASTED = "FILTER (WHERE a_status IN ('error', 'aborted'))"
_INPUT = " + ".join(name for name in TOKEN_FIELDS if name.startswith("input"))
SUMS: dict[str, str] = {
    "operations": "sum(operations)", "attempts": "sum(n)", "attempts_end_unknown": "sum(end_unknown)",
    **{name: f"sum({name})" for name in TOKEN_FIELDS},
    "wasted_input": f"coalesce(sum({_INPUT}) {_WASTED}, 0)", "wasted_output": f"coalesce(sum(output) {_WASTED}, 0)",
}  # fmt: skip
"""``operations`` counts what was asked once; each request is one attempt at it (retries and fallbacks are attempts more).
``attempts_end_unknown`` failed and nobody says whether they were tried again: so many operations more there may be.
What failed or was left burned ``wasted_…``, which the six counts include."""
TOKENS = ", ".join(TOKEN_FIELDS)


def usage_rows(
    connection: Connection,
    by: Sequence[str],
    window: Window,
    filters: Mapping[str, str] | None = None,
    *,
    zone_name: str = "UTC",
) -> list[Row]:
    """Rows of ``show usage``: the keys asked for, then request counts, the six token counts and the rest of ``SUMS``, ordered
    by the keys.

    ``by`` may hold one of minute, hour, day; minute and hour are UTC instants, day is a date in ``zone_name``. ``deployment`` is
    ``cluster/namespace/model_id``. A window without usage gives no row. Raises BadInput for an unknown key or a part of a minute.
    """
    time_key = check_keys(by, filters or {}, USAGE_KEYS)
    where, values = filter_sql(filters or {})
    named = {*columns_of((*by, *(filters or {}))), "status", "usage_source"}

    def select(level: Level) -> str:
        keys = keys_sql(by, level, zone_name, values)
        return f"{keys}status AS a_status, usage_source AS a_source, requests AS n, operations, end_unknown, {TOKENS}"

    inner = rollup_rows(USAGE, window, coarsest_for(time_key, window, zone_name), named, select, where, values)
    counts = [f"coalesce(sum(n) FILTER (WHERE {rule}), 0)::bigint AS {name}" for name, rule in COUNTS.items()]
    measures = ", ".join([*counts, *(f"({value})::bigint AS {name}" for name, value in SUMS.items())])
    keys = ", ".join(f'"{key}"' for key in by)
    grouped = f"GROUP BY {keys} ORDER BY {keys}" if by else "HAVING count(*) > 0"
    found = connection.execute(text(f"SELECT {keys}{', ' if by else ''}{measures} FROM ({inner}) AS part {grouped}"), values)
    return [_plain(dict(row)) for row in found.mappings()]


def _plain(row: Row) -> Row:
    for name in TIME_KEYS:
        at = row.get(name)
        if isinstance(at, datetime):
            row[name] = at.astimezone(UTC)
        elif isinstance(at, date):
            row[name] = at.isoformat()
    return row
