"""What scopes have spent in closed quarter hours, for any number of (scope, window) pairs in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, text

from core.scopes import Scope, ScopeKind
from core.usage import Deployment
from core.windows import Window, floor_time
from models.asked_scopes import AskedScopes, asked_scopes

DAY = timedelta(days=1)
Span = tuple[int, datetime, datetime]
"""Which pair, and the half-open time of it."""

_DAYS = """
    SELECT a.n, x.currency, CASE WHEN {own} THEN x.cost ELSE 0 END AS cost, x.allocated
    FROM {asked} JOIN ledger_day x ON {holds} AND x.day >= a.since AND x.day < a.until
"""
_LINES = """
    SELECT a.n, w.currency, CASE WHEN {own} THEN x.cost ELSE 0 END AS cost, x.allocated
    FROM {asked} JOIN ledger_line x ON {holds} AND x.window_start >= a.since AND x.window_start < a.until
    JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
"""
_SUMS = "SELECT n, currency, sum(cost) AS cost, sum(allocated) AS allocated FROM ({parts}) parts GROUP BY n, currency"
_ANY_UNPRICED = text("""
    SELECT 1 FROM ledger_window x JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    WHERE x.capacity_cost IS NULL AND x.window_start >= :since AND x.window_start < :until
        AND x.gateway_input_tokens + x.gateway_output_tokens > 0 LIMIT 1
""")
_UNPRICED = """
    SELECT a.n, x.cluster, x.namespace, x.model_id, count(*) AS windows, min(x.detail ->> 'reason') AS reason
    FROM {asked} JOIN ledger_window x ON x.window_start >= a.since AND x.window_start < a.until
    JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    JOIN LATERAL (
        SELECT 1 FROM usage_minute u WHERE u.minute >= x.window_start AND u.minute < x.window_start + interval '15 minutes'
            AND (u.cluster, u.namespace, u.model_id) = (x.cluster, x.namespace, x.model_id) AND {holds} LIMIT 1
    ) used ON TRUE
    WHERE x.capacity_cost IS NULL AND x.gateway_input_tokens + x.gateway_output_tokens > 0
    GROUP BY 1, 2, 3, 4
"""


@dataclass(frozen=True, slots=True)
class ClosedSum:
    """Closed cost of one currency. ``usage``: a tenant's served and wasted work, of a deployment or the platform also
    unattributed. ``allocated``: every line, with idle and starting time borne by the work."""

    usage: Decimal
    allocated: Decimal


def closed_sums(connection: Connection, asks: Sequence[tuple[Scope, Window]]) -> list[dict[str, ClosedSum]]:
    """Per pair the closed cost by currency of the quarter hours that start in its window: whole UTC days from the day sums, the
    rest from the lines."""
    scopes = [scope for scope, _ in asks]
    days: list[Span] = []
    lines: list[Span] = []
    for n, (_, window) in enumerate(asks):
        first, after = floor_time(window.start + DAY - timedelta(microseconds=1), DAY), floor_time(window.end, DAY)
        days += [(n, first, after)] if first < after else []
        edges = ((window.start, first), (after, window.end)) if first < after else ((window.start, window.end),)
        lines += [(n, since, until) for since, until in edges if since < until]
    parts: list[str] = []
    values: dict[str, Any] = {}
    for query, spans, prefix in ((_DAYS, days, "d"), (_LINES, lines, "l")):
        for asked in _asked(scopes, spans, prefix):
            parts.append(query.format(own=_own(asked.kind), asked=asked.relation, holds=asked.holds("x")))
            values |= asked.values
    found: list[dict[str, ClosedSum]] = [{} for _ in asks]
    if parts:
        for row in connection.execute(text(_SUMS.format(parts=" UNION ALL ".join(parts))), values):
            found[row.n][row.currency] = ClosedSum(row.cost, row.allocated)
    return found


def unpriced_windows(connection: Connection, asks: Sequence[tuple[Scope, Window]]) -> list[list[tuple[Deployment, int, str]]]:
    """Per pair the deployments in which it has closed quarter hours with tokens and no price: how many, and why."""
    found: list[list[tuple[Deployment, int, str]]] = [[] for _ in asks]
    if not asks:
        return found
    whole = {"since": min(w.start for _, w in asks), "until": max(w.end for _, w in asks)}
    if connection.execute(_ANY_UNPRICED, whole).first() is None:
        return found
    spans = [(n, window.start, window.end) for n, (_, window) in enumerate(asks)]
    parts: list[str] = []
    values: dict[str, Any] = {}
    for asked in _asked([scope for scope, _ in asks], spans, "a"):
        parts.append(_UNPRICED.format(asked=asked.relation, holds=asked.holds("u")))
        values |= asked.values
    for r in connection.execute(text(" UNION ALL ".join(parts) + " ORDER BY 1, 2, 3, 4"), values):
        found[r.n].append((Deployment(r.cluster, r.namespace, r.model_id), r.windows, r.reason))
    return found


def _asked(scopes: Sequence[Scope], spans: Sequence[Span], prefix: str) -> list[AskedScopes]:
    beside: dict[str, tuple[str, Sequence[Any]]] = {
        "n": ("integer", [n for n, _, _ in spans]),
        "since": ("timestamptz", [since for _, since, _ in spans]),
        "until": ("timestamptz", [until for _, _, until in spans]),
    }
    return asked_scopes([scopes[n] for n, _, _ in spans], beside, prefix)


def _own(kind: ScopeKind) -> str:
    own = ("served", "wasted", "unattributed") if kind in ("deployment", "platform") else ("served", "wasted")
    return "x.kind IN (" + ", ".join(f"'{name}'" for name in own) + ")"
