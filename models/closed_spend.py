"""What scopes have spent in closed quarter hours, for any number of (scope, window) pairs in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, text

from core.scopes import Scope, ScopeKind
from core.unit_cost import CostBasis
from core.usage import Deployment
from core.windows import Window
from models.asked_scopes import AskedScopes, asked_scopes
from models.ledger_sums import next_quarter
from models.usage_pieces import Level, pieces

WHOLE: tuple[ScopeKind, ...] = ("deployment", "platform")
"""Scopes that hold every line of a window, whomever it served."""
TEAM_DEPTH = 2
"""A tenant path of organisation and team names the keys of the sums by team."""
Span = tuple[int, datetime, datetime]
"""Which pair, and the half-open time of it."""
HourCosts = dict[str, dict[datetime, Decimal]]
"""By currency the cost of UTC hours, by their start."""
Gap = tuple[Deployment, int, str]
"""Closed quarter hours of a deployment without a price: how many, and why."""

# OFFSET 0 keeps what stands before it inside: the planner would else read whole tables once and compare.
_SPANS = """
    SELECT a.n, x.{unit} AS at, x.currency, CASE WHEN {own} THEN x.cost ELSE 0 END AS cost, x.allocated,
           CASE WHEN {own} THEN x.trueup_cost ELSE 0 END AS trueup_cost, x.trueup_allocated
    FROM {asked} CROSS JOIN LATERAL (
        SELECT * FROM {table} x WHERE {holds} AND x.{unit} >= a.since AND x.{unit} < a.until OFFSET 0
    ) x
"""
_LINES = """
    SELECT a.n, x.window_start AS at, w.currency, x.cost, x.allocated, x.trueup_cost, x.trueup_allocated
    FROM {asked} CROSS JOIN LATERAL (
        SELECT cluster, namespace, model_id, window_start, version, sum(CASE WHEN {own} THEN x.cost ELSE 0 END) AS cost,
               sum(x.allocated) AS allocated, sum(CASE WHEN {own} THEN x.trueup_cost ELSE 0 END) AS trueup_cost,
               sum(x.trueup_allocated) AS trueup_allocated
        FROM ledger_line x WHERE {holds} AND x.window_start >= a.since AND x.window_start < a.until
        GROUP BY 1, 2, 3, 4, 5 OFFSET 0
    ) x CROSS JOIN LATERAL (
        SELECT w.currency FROM ledger_head h JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
        WHERE cluster = x.cluster AND namespace = x.namespace AND model_id = x.model_id AND window_start = x.window_start
            AND version = x.version OFFSET 0
    ) w
"""
_SUMS = """
    SELECT n, currency, sum(cost) AS cost, sum(allocated) AS allocated, sum(trueup_cost) AS trueup_cost,
           sum(trueup_allocated) AS trueup_allocated
    FROM ({parts}) parts GROUP BY n, currency
"""
_BY_HOUR = """
    SELECT n, currency, date_trunc('hour', at, 'UTC') AS hour, sum(cost - trueup_cost) AS usage,
           sum(allocated - trueup_allocated) AS allocated
    FROM ({parts}) parts GROUP BY 1, 2, 3
"""
_TOKENS_WITHOUT_PRICE = "x.capacity_cost IS NULL AND x.gateway_input_tokens + x.gateway_output_tokens > 0"
_GAPS = text(f"""
    SELECT w.n, x.cluster, x.namespace, x.model_id, count(*) AS windows, min(x.detail ->> 'reason') AS reason
    FROM unnest(CAST(:n AS integer[]), CAST(:since AS timestamptz[]), CAST(:until AS timestamptz[])) AS w(n, since, until)
    JOIN ledger_window x ON x.window_start >= w.since AND x.window_start < w.until
    JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    WHERE {_TOKENS_WITHOUT_PRICE} GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
""")
# Each LIMIT 1 stops at the first sign of use; the day's sums spare those who never used the deployment the search by minute.
_USED = f"""
    SELECT a.gap FROM {{asked}}
    JOIN LATERAL (
        SELECT 1 FROM usage_day u WHERE u.day >= date_trunc('day', a.since, 'UTC') AND u.day < a.until
            AND (u.cluster, u.namespace, u.model_id) = (a.cluster, a.namespace, a.model_id) AND {{holds}} LIMIT 1
    ) at_all ON TRUE
    JOIN LATERAL (
        SELECT 1 FROM ledger_window x JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
        JOIN LATERAL (
            SELECT 1 FROM usage_minute u
            WHERE u.minute >= x.window_start AND u.minute < x.window_start + interval '15 minutes'
                AND (u.cluster, u.namespace, u.model_id) = (x.cluster, x.namespace, x.model_id) AND {{holds}} LIMIT 1
        ) then_too ON TRUE
        WHERE x.window_start >= a.since AND x.window_start < a.until
            AND (x.cluster, x.namespace, x.model_id) = (a.cluster, a.namespace, a.model_id) AND {_TOKENS_WITHOUT_PRICE} LIMIT 1
    ) used ON TRUE
"""


@dataclass(frozen=True, slots=True)
class ClosedSum:
    """Closed cost of one currency. ``usage``: a tenant's served and wasted work, of a deployment or the platform also
    unattributed. ``allocated``: every line, with idle and starting time borne by the work. ``trueup_*``: how much of each is
    there because bills say another price than the rates did; decisions leave it out."""

    usage: Decimal
    allocated: Decimal
    trueup_usage: Decimal = Decimal(0)
    trueup_allocated: Decimal = Decimal(0)


def closed_sums(connection: Connection, asks: Sequence[tuple[Scope, Window]]) -> list[dict[str, ClosedSum]]:
    """Per pair the closed cost by currency of the quarter hours that start in its window: whole UTC days from the day sums, of
    a deployment, the platform, an organisation or a team also whole hours from theirs, the rest from the lines."""
    scopes = [scope for scope, _ in asks]
    parts: list[str] = []
    values: dict[str, Any] = {}
    for level, spans in _cut(asks).items():
        for asked in _asked(scopes, spans, level):
            query = _query(level, _sums_of(asked.kind, len(asked.columns)))
            parts.append(query.format(own=_own(asked.kind), asked=asked.relation, holds=asked.holds("x")))
            values |= asked.values
    found: list[dict[str, ClosedSum]] = [{} for _ in asks]
    if parts:
        for row in connection.execute(text(_SUMS.format(parts=" UNION ALL ".join(parts))), values):
            found[row.n][row.currency] = ClosedSum(row.cost, row.allocated, row.trueup_cost, row.trueup_allocated)
    return found


def hourly_costs(connection: Connection, asks: Sequence[tuple[Scope, Window]], basis: CostBasis) -> list[HourCosts]:
    """Per pair the closed cost of each UTC hour of its window at provisional rates, by currency; hours without a line are absent.
    The windows begin and end on hours."""
    parts: list[str] = []
    values: dict[str, Any] = {}
    levels: tuple[Level, ...] = ("hour", "minute")
    for level in levels:
        spans = [
            (n, window.start, window.end)
            for n, (scope, window) in enumerate(asks)
            if (_sums_of(scope.kind, len(scope.parts)) is None) == (level == "minute")
        ]
        for asked in _asked([scope for scope, _ in asks], spans, level):
            query = _query(level, _sums_of(asked.kind, len(asked.columns)))
            parts.append(query.format(own=_own(asked.kind), asked=asked.relation, holds=asked.holds("x")))
            values |= asked.values
    found: list[HourCosts] = [{} for _ in asks]
    for row in connection.execute(text(_BY_HOUR.format(parts=" UNION ALL ".join(parts))), values) if parts else ():
        found[row.n].setdefault(row.currency, {})[row.hour] = row.allocated if basis == "allocation" else row.usage
    return found


def _cut(asks: Sequence[tuple[Scope, Window]]) -> dict[Level, list[Span]]:
    """The spans of every pair by what they are read from: days, hours, or lines (minute)."""
    found: dict[Level, list[Span]] = {"day": [], "hour": [], "minute": []}
    for n, (scope, window) in enumerate(asks):
        start, end = next_quarter(window.start), next_quarter(window.end)
        for piece in pieces(Window(start, end), "day") if start < end else ():
            level: Level = "minute" if piece.level == "hour" and _sums_of(scope.kind, len(scope.parts)) is None else piece.level
            spans = found[level]
            if spans and (spans[-1][0], spans[-1][2]) == (n, piece.start):
                spans[-1] = (n, spans[-1][1], piece.end)
            else:
                spans.append((n, piece.start, piece.end))
    return found


def _sums_of(kind: ScopeKind, depth: int) -> str | None:
    """The sums by hour and day that hold scopes of this kind and depth; None: there are only those by day and every key."""
    if kind in WHOLE:
        return "ledger_kind"
    return "ledger_team" if kind == "tenant" and depth <= TEAM_DEPTH else None


def _query(level: Level, sums: str | None) -> str:
    if level == "minute":
        return _LINES
    table = f"{sums}_{level}" if sums else "ledger_day"
    return _SPANS.replace("{table}", table).replace("{unit}", level)


def unpriced_windows(connection: Connection, asks: Sequence[tuple[Scope, Window]]) -> list[list[Gap]]:
    """Per pair the deployments it used in closed quarter hours with tokens and no price: how many such the deployment has in the
    window, and why."""
    found: list[list[Gap]] = [[] for _ in asks]
    windows = list(dict.fromkeys(window for _, window in asks))
    gaps = _gaps(connection, windows)
    possible = [(n, gap) for n, (_, window) in enumerate(asks) for gap in gaps.get(window, ())]
    if not possible:
        return found
    beside: dict[str, tuple[str, Sequence[Any]]] = {
        "gap": ("integer", range(len(possible))),
        "since": ("timestamptz", [asks[n][1].start for n, _ in possible]),
        "until": ("timestamptz", [asks[n][1].end for n, _ in possible]),
        "cluster": ("text", [gap[0].cluster for _, gap in possible]),
        "namespace": ("text", [gap[0].namespace for _, gap in possible]),
        "model_id": ("text", [gap[0].model_id for _, gap in possible]),
    }
    parts: list[str] = []
    values: dict[str, Any] = {}
    for asked in asked_scopes([asks[n][0] for n, _ in possible], beside):
        parts.append(_USED.format(asked=asked.relation, holds=asked.holds("u")))
        values |= asked.values
    for row in connection.execute(text(" UNION ALL ".join(parts) + " ORDER BY 1"), values):
        n, gap = possible[row.gap]
        found[n].append(gap)
    return found


def _gaps(connection: Connection, windows: Sequence[Window]) -> dict[Window, list[Gap]]:
    found: dict[Window, list[Gap]] = {}
    if windows:
        starts, ends = [w.start for w in windows], [w.end for w in windows]
        for r in connection.execute(_GAPS, {"n": list(range(len(windows))), "since": starts, "until": ends}):
            gap = (Deployment(r.cluster, r.namespace, r.model_id), r.windows, r.reason)
            found.setdefault(windows[r.n], []).append(gap)
    return found


def _asked(scopes: Sequence[Scope], spans: Sequence[Span], prefix: str) -> list[AskedScopes]:
    beside: dict[str, tuple[str, Sequence[Any]]] = {
        "n": ("integer", [n for n, _, _ in spans]),
        "since": ("timestamptz", [since for _, since, _ in spans]),
        "until": ("timestamptz", [until for _, _, until in spans]),
    }
    return asked_scopes([scopes[n] for n, _, _ in spans], beside, prefix)


def _own(kind: ScopeKind) -> str:
    own = ("served", "wasted", "unattributed") if kind in WHOLE else ("served", "wasted")
    return "x.kind IN (" + ", ".join(f"'{name}'" for name in own) + ")"
