"""Sums of the newest versions' lines by hour, UTC day and UTC month: pages read a year without its lines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from core.windows import QUARTER_HOUR, Window, floor_time
from models.usage_pieces import Level, coarsest_for, pieces

LINE_COLUMNS = (
    "cluster", "namespace", "model_id", "org", "team", "project", "user_id", "key_id", "service_tier", "workload_class", "kind",
    "token_kind",
)  # fmt: skip
KIND_COLUMNS = ("cluster", "namespace", "model_id", "kind", "token_kind")
TEAM_COLUMNS = ("org", "team", "kind", "token_kind")
_ADDED = ("tokens", "requests", "cost", "allocated", "trueup_cost", "trueup_allocated")
_SUMS = ("lines", *_ADDED)
TABLES: tuple[tuple[str, Level, tuple[str, ...]], ...] = (
    ("ledger_line_day", "day", LINE_COLUMNS),
    ("ledger_line_month", "month", LINE_COLUMNS),
    ("ledger_kind_day", "day", KIND_COLUMNS),
    ("ledger_kind_hour", "hour", KIND_COLUMNS),
    ("ledger_team_month", "month", TEAM_COLUMNS),
    ("ledger_team_day", "day", TEAM_COLUMNS),
    ("ledger_team_hour", "hour", TEAM_COLUMNS),
)
"""Name, the unit its time column is named after, and the keys of each table of sums."""
_TIMES = {"day", "hour", "quarter_hour"}
_CHOICE: tuple[tuple[str, tuple[str, ...], tuple[Level, ...]], ...] = (
    ("kind", KIND_COLUMNS, ("day", "hour")),
    ("team", TEAM_COLUMNS, ("month", "day", "hour")),
    ("line", LINE_COLUMNS, ("month", "day")),
)
"""Sums a question may be read from, fewest rows first: part of their tables' names, the keys, the levels kept, coarsest first."""


def _move(table: str, unit: str, columns: tuple[str, ...]) -> str:
    keys, places = ", ".join(columns), ", ".join(str(n) for n in range(1, len(columns) + 3))
    more = ", ".join(f"{name} = d.{name} + excluded.{name}" for name in _SUMS)
    return f"""
        INSERT INTO {table} AS d ({unit}, {keys}, currency, {", ".join(_SUMS)})
        SELECT date_trunc('{unit}', window_start, 'UTC'), {keys}, m.currency, sum(m.sign),
               {", ".join(f"sum(m.sign * {name})" for name in _ADDED)}
        FROM ledger_line l JOIN unnest(
            CAST(:starts AS timestamptz[]), CAST(:versions AS integer[]), CAST(:currencies AS varchar[]),
            CAST(:signs AS integer[])
        ) AS m (window_start, version, currency, sign) USING (window_start, version)
        WHERE cluster = :cluster AND namespace = :namespace AND model_id = :model_id
            AND window_start BETWEEN :first AND :last
        GROUP BY {places} ORDER BY {places}
        ON CONFLICT ({unit}, {keys}, currency) DO UPDATE SET {more}
    """


_MOVES = tuple(text(_move(*table)) for table in TABLES)


def move_sums(connection: Connection, values: Mapping[str, Any]) -> None:
    """Add (sign 1) or take out (sign -1) the lines of ``starts`` × ``versions`` of a deployment, in the close's transaction."""
    for move in _MOVES:
        connection.execute(move, values)


def newest_lines(window: Window, keys: Collection[str], zone_name: str, values: dict[str, Any]) -> str:
    """A relation of the newest lines that start in ``window``, from the coarsest sums that have the line's and time ``keys``;
    adds its bounds to ``values``. Columns: window_start (the sum's own start), the keys, currency, and the four sums."""
    start, end = next_quarter(window.start), next_quarter(window.end)
    named = set().union(*(("cluster", "namespace", "model_id") if key == "deployment" else (key,) for key in keys)) - _TIMES
    table, columns, levels = next((one for one in _CHOICE if named <= set(one[1])), _CHOICE[-1])
    cut = pieces(Window(start, end), _coarsest(keys, window, zone_name, levels[0])) if start < end else ()
    parts: list[str] = []
    fine: list[Window] = []
    for n, piece in enumerate(cut):
        if piece.level in levels:
            values |= {f"from{n}": piece.start, f"to{n}": piece.end}
            parts.append(
                f"SELECT {piece.level} AS window_start, {', '.join(columns)}, currency, tokens, requests, cost, allocated "
                f"FROM ledger_{table}_{piece.level} "
                f"WHERE lines > 0 AND {piece.level} >= :from{n} AND {piece.level} < :to{n}"
            )
        elif fine and fine[-1].end == piece.start:
            fine[-1] = Window(fine[-1].start, piece.end)
        else:
            fine.append(Window(piece.start, piece.end))
    for n, span in enumerate(fine):
        values |= {f"since{n}": span.start, f"until{n}": span.end}
        parts.append(_fine_lines(columns, f">= :since{n}", f"< :until{n}"))
    parts += [] if parts else [_fine_lines(columns, "IS NULL")]
    return f"({' UNION ALL '.join(parts)})"


def _fine_lines(columns: tuple[str, ...], *rules: str) -> str:
    """The bounds are said of each table: the planner does not carry a range over a join, and would look every line up."""
    names = ", ".join(f"l.{name}" for name in ("window_start", *columns))
    where = " AND ".join(f"{table}.window_start {rule}" for table in "lhw" for rule in rules)
    return (
        f"SELECT {names}, w.currency, l.tokens, l.requests, l.cost, l.allocated FROM ledger_line l "
        "JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version) "
        f"JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version) WHERE {where}"
    )


def _coarsest(keys: Collection[str], window: Window, zone_name: str, coarsest: Level) -> Level:
    if "quarter_hour" in keys:
        return "minute"
    if "hour" in keys or "day" in keys:
        return coarsest_for("hour" if "hour" in keys else "day", window, zone_name)
    return coarsest


def next_quarter(at: datetime) -> datetime:
    """The first quarter hour that starts at or after ``at``."""
    return floor_time(at + QUARTER_HOUR - timedelta(microseconds=1), QUARTER_HOUR)
