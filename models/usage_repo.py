"""Sums of metered usage and of what the engines say of it, for any window of whole minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Connection, text

from core.tokens import TOKEN_FIELDS
from core.windows import Window
from models.coverage_repo import COVERAGE_KEYS, coverage_rows
from models.usage_keys import TIME_KEYS, USAGE_KEYS, Row, check_keys, filter_sql, key_sql
from models.usage_pieces import Piece, coarsest_for, pieces

__all__ = ["COVERAGE_KEYS", "USAGE_KEYS", "coverage_rows", "usage_rows"]

COUNTS: dict[str, str] = {
    "requests": "TRUE", "errors": "a_status = 'error'", "aborted": "a_status = 'aborted'", "refused": "a_status = 'refused'",
    "estimated": "a_source = 'estimated'", "missing": "a_source = 'missing'",
}  # fmt: skip


def usage_rows(
    connection: Connection,
    by: Sequence[str],
    window: Window,
    filters: Mapping[str, str] | None = None,
    *,
    zone_name: str = "UTC",
) -> list[Row]:
    """Rows of ``show usage``: the keys asked for, then request counts and the six token counts, ordered by the keys.

    ``by`` may hold one of minute, hour, day; minute and hour are UTC instants, day is a date in ``zone_name``. ``deployment`` is
    ``cluster/namespace/model_id``. A window without usage gives no row. Raises BadInput for an unknown key or a part of a minute.
    """
    time_key = check_keys(by, filters or {}, USAGE_KEYS)
    parts = pieces(window, coarsest_for(time_key, window, zone_name))
    where, values = filter_sql(filters or {})
    inner = " UNION ALL ".join(_piece_sql(number, part, by, where, zone_name, values) for number, part in enumerate(parts))
    counts = [f"coalesce(sum(n) FILTER (WHERE {rule}), 0)::bigint AS {name}" for name, rule in COUNTS.items()]
    measures = ", ".join([*counts, *(f"sum({name})::bigint AS {name}" for name in TOKEN_FIELDS)])
    keys = ", ".join(f'"{key}"' for key in by)
    grouped = f"GROUP BY {keys} ORDER BY {keys}" if by else "HAVING count(*) > 0"
    found = connection.execute(text(f"SELECT {keys}{', ' if by else ''}{measures} FROM ({inner}) AS part {grouped}"), values)
    return [_plain(dict(row)) for row in found.mappings()]


def _piece_sql(number: int, part: Piece, by: Sequence[str], where: str, zone_name: str, values: dict[str, Any]) -> str:
    """The rows of one piece, not yet summed: so PostgreSQL reads many of them with several workers."""
    values |= {f"start{number}": part.start, f"end{number}": part.end}
    keys = "".join(f'{key_sql(key, part.level, zone_name, values)} AS "{key}", ' for key in by)
    range_sql = f"{part.level} >= :start{number} AND {part.level} < :end{number}"
    return (
        f"SELECT {keys}status AS a_status, usage_source AS a_source, requests AS n, {', '.join(TOKEN_FIELDS)} "
        f"FROM usage_{part.level} WHERE {range_sql}{where}"
    )


def _plain(row: Row) -> Row:
    for name in TIME_KEYS:
        at = row.get(name)
        if isinstance(at, datetime):
            row[name] = at.astimezone(UTC)
        elif isinstance(at, date):
            row[name] = at.isoformat()
    return row
