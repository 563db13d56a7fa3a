"""Sums of the newest versions' lines by UTC day and month, with every key a line has: pages read months without their lines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from core.windows import QUARTER_HOUR, Window, floor_time
from models.usage_pieces import Level, pieces

LINE_COLUMNS = (
    "cluster", "namespace", "model_id", "org", "team", "project", "user_id", "key_id", "service_tier", "workload_class", "kind",
    "token_kind",
)  # fmt: skip
_SUMS = ("lines", "tokens", "requests", "cost", "allocated")
UNITS: tuple[Level, ...] = ("day", "month")
_KEYS = ", ".join(LINE_COLUMNS)
_PLACES = ", ".join(str(n) for n in range(1, len(LINE_COLUMNS) + 3))


def _move(unit: str) -> str:
    more = ", ".join(f"{name} = d.{name} + excluded.{name}" for name in _SUMS)
    return f"""
        INSERT INTO ledger_line_{unit} AS d ({unit}, {_KEYS}, currency, {", ".join(_SUMS)})
        SELECT date_trunc('{unit}', window_start, 'UTC'), {_KEYS}, m.currency, sum(m.sign), sum(m.sign * tokens),
               sum(m.sign * requests), sum(m.sign * cost), sum(m.sign * allocated)
        FROM ledger_line l JOIN unnest(
            CAST(:starts AS timestamptz[]), CAST(:versions AS integer[]), CAST(:currencies AS varchar[]),
            CAST(:signs AS integer[])
        ) AS m (window_start, version, currency, sign) USING (window_start, version)
        WHERE cluster = :cluster AND namespace = :namespace AND model_id = :model_id
            AND window_start BETWEEN :first AND :last
        GROUP BY {_PLACES} ORDER BY {_PLACES}
        ON CONFLICT ({unit}, {_KEYS}, currency) DO UPDATE SET {more}
    """


_MOVES = tuple(text(_move(unit)) for unit in UNITS)


def move_sums(connection: Connection, values: Mapping[str, Any]) -> None:
    """Add (sign 1) or take out (sign -1) the lines of ``starts`` × ``versions`` of a deployment, in the close's transaction."""
    for move in _MOVES:
        connection.execute(move, values)


def newest_lines(window: Window, time_key: str | None, zone_name: str, values: dict[str, Any]) -> str:
    """A relation of the newest lines that start in ``window``, from the coarsest sums that can be grouped by ``time_key``;
    adds its bounds to ``values``. Columns: window_start (the sum's own start), ``LINE_COLUMNS``, currency, and the four sums."""
    start, end = (_up(at) for at in (window.start, window.end))
    cut = pieces(Window(start, end), _coarsest(time_key, zone_name)) if start < end else ()
    parts: list[str] = []
    fine: list[str] = []
    for n, piece in enumerate(cut):
        values |= {f"from{n}": piece.start, f"to{n}": piece.end}
        if piece.level in UNITS:
            parts.append(
                f"SELECT {piece.level} AS window_start, {_KEYS}, currency, tokens, requests, cost, allocated "
                f"FROM ledger_line_{piece.level} WHERE lines > 0 AND {piece.level} >= :from{n} AND {piece.level} < :to{n}"
            )
        else:
            fine.append(f"(l.window_start >= :from{n} AND l.window_start < :to{n})")
    if fine or not parts:
        columns = ", ".join(f"l.{name}" for name in ("window_start", *LINE_COLUMNS))
        parts.append(
            f"SELECT {columns}, w.currency, l.tokens, l.requests, l.cost, l.allocated FROM ledger_line l "
            "JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version) "
            "JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version) "
            f"WHERE {' OR '.join(fine) or 'FALSE'}"
        )
    return f"({' UNION ALL '.join(parts)})"


def _coarsest(time_key: str | None, zone_name: str) -> Level:
    """Days of another zone than UTC, hours and quarter hours are summed from the lines."""
    if time_key is None:
        return "month"
    return "day" if time_key == "day" and zone_name == "UTC" else "hour"


def _up(at: datetime) -> datetime:
    """The first quarter hour that starts at or after ``at``."""
    return floor_time(at + QUARTER_HOUR - timedelta(microseconds=1), QUARTER_HOUR)
