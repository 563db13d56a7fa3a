"""Fast reads for spend between closes, on every loader commit: closed sums by scope, open work, frozen unit rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, text

from core.allocate import Work
from core.running import RunningUnits, units_from_text
from core.scopes import Scope
from core.unit_cost import CostBasis
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window, floor_time

DAY = timedelta(days=1)
RECENT = timedelta(minutes=45)
"""Quarter hours this young are looked at even if nothing marked them."""

_OPEN = text("""
    WITH marked AS (
        SELECT cluster, namespace, model_id, window_start FROM dirty_window WHERE window_start >= :start AND window_start < :end
        UNION
        SELECT s.cluster, s.namespace, s.model_id, q FROM node_service s,
            generate_series(greatest(:recent, :start), least(:now, :end) - interval '1 microsecond', interval '15 minutes') q
    )
    SELECT m.cluster, m.namespace, m.model_id, m.window_start, r.currency, r.source, r.units
    FROM marked m LEFT JOIN running_rate r USING (cluster, namespace, model_id, window_start)
    WHERE NOT EXISTS (
        SELECT 1 FROM ledger_head h WHERE (h.cluster, h.namespace, h.model_id, h.window_start)
            = (m.cluster, m.namespace, m.model_id, m.window_start)
    )
""")
_WORK = """
    SELECT cluster, namespace, model_id, date_bin('15 minutes', minute, TIMESTAMPTZ 'epoch') AS window_start,
           sum(requests) AS requests, sum(input_uncached + input_cache_write_5m + input_cache_write_1h) AS input_uncached,
           sum(input_cache_read) AS input_cached, sum(output) AS output, sum(kv_work_x2) AS kv_work_x2
    FROM usage_minute u WHERE minute >= :start AND minute < :end AND {scope}
    GROUP BY 1, 2, 3, 4
"""
_CLOSED = """
    SELECT currency, sum(amount) AS amount FROM (
        SELECT x.currency, x.{column} AS amount FROM ledger_day x
        WHERE x.day >= :first_day AND x.day < :after_day AND {kinds} AND {scope}
        UNION ALL
        SELECT w.currency, x.{column} FROM ledger_line x
        JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
        JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
        WHERE ({edges}) AND {kinds} AND {scope}
    ) parts GROUP BY currency ORDER BY currency
"""
_UNPRICED = """
    SELECT x.cluster, x.namespace, x.model_id, count(*) AS windows, min(x.detail ->> 'reason') AS reason
    FROM ledger_window x JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    WHERE x.capacity_cost IS NULL AND x.window_start >= :start AND x.window_start < :end
        AND x.gateway_input_tokens + x.gateway_output_tokens > 0 AND EXISTS (
            SELECT 1 FROM usage_minute u WHERE u.minute >= x.window_start AND u.minute < x.window_start + interval '15 minutes'
                AND (u.cluster, u.namespace, u.model_id) = (x.cluster, x.namespace, x.model_id) AND {scope}
        )
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
_LAST_UNITS = text("""
    SELECT w.window_start, w.currency, w.weight_source, w.detail -> 'running' AS units
    FROM ledger_head h JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
    WHERE h.cluster = :cluster AND h.namespace = :namespace AND h.model_id = :model_id AND h.window_start < :start
        AND jsonb_typeof(w.detail -> 'running') = 'object'
    ORDER BY h.window_start DESC LIMIT 1
""")
_FREEZE = text("""
    INSERT INTO running_rate (cluster, namespace, model_id, window_start, currency, source, units)
    VALUES (:cluster, :namespace, :model_id, :start, :currency, :source, CAST(:units AS jsonb))
    ON CONFLICT (cluster, namespace, model_id, window_start) DO NOTHING
""")
_FROZEN = text("""
    SELECT currency, source, units FROM running_rate
    WHERE cluster = :cluster AND namespace = :namespace AND model_id = :model_id AND window_start = :start
""")
_SO_FAR = text("""
    SELECT sum(requests) AS requests, sum(input_uncached + input_cache_write_5m + input_cache_write_1h) AS input_uncached,
           sum(input_cache_read) AS input_cached, sum(output) AS output, sum(kv_work_x2) AS kv_work_x2,
           sum(duration_ms) AS duration_ms, count(DISTINCT minute) AS minutes
    FROM usage_minute
    WHERE minute >= :start AND minute < :end AND cluster = :cluster AND namespace = :namespace AND model_id = :model_id
""")
_OPEN_SINCE = text("""
    SELECT s.cluster, s.namespace, s.model_id,
           coalesce(max(h.window_start) + interval '15 minutes', min(s.in_service_from)) AS since
    FROM (SELECT cluster, namespace, model_id, min(in_service_from) AS in_service_from FROM node_service GROUP BY 1, 2, 3) s
    LEFT JOIN LATERAL (
        SELECT window_start FROM ledger_head h
        WHERE (h.cluster, h.namespace, h.model_id) = (s.cluster, s.namespace, s.model_id) ORDER BY window_start DESC LIMIT 1
    ) h ON TRUE
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
""")


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What a scope did in one open quarter hour of one deployment, and the unit rates frozen for it (None: not yet)."""

    deployment: Deployment
    start: datetime
    work: Work
    units: RunningUnits | None


@dataclass(frozen=True, slots=True)
class WorkSoFar:
    """Gateway work of a period; ``busy_us`` is at most the time requests took and at most the minutes with any."""

    work: Work
    busy_us: int


def open_work(connection: Connection, scope: Scope, window: Window, now: datetime) -> list[OpenWork]:
    """The scope's work in quarter hours that start in ``window`` and that no close has priced yet."""
    recent = floor_time(now, QUARTER_HOUR) - RECENT
    bound = {"start": window.start, "end": window.end, "recent": recent, "now": now}
    opened = {(r.cluster, r.namespace, r.model_id, r.window_start): r for r in connection.execute(_OPEN, bound)}
    condition, values = _scope(scope, "u")
    query, found = text(_WORK.format(scope=condition)), []
    for start, end in _ranges({key[3] for key in opened}):
        for r in connection.execute(query, {"start": start, "end": end, **values}):
            place = opened.get((r.cluster, r.namespace, r.model_id, r.window_start))
            if place is not None:
                found.append(OpenWork(Deployment(r.cluster, r.namespace, r.model_id), r.window_start, _work(r), _units(place)))
    return found


def _ranges(starts: set[datetime]) -> list[tuple[datetime, datetime]]:
    """Neighbouring quarter hours as one span each, so that the reads follow the rollup's time order."""
    spans: list[tuple[datetime, datetime]] = []
    for start in sorted(starts):
        if spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], start + QUARTER_HOUR)
        else:
            spans.append((start, start + QUARTER_HOUR))
    return spans


def _units(row: Any) -> RunningUnits | None:
    return None if row.units is None else units_from_text(row.units, row.currency, row.source)


def closed_sums(connection: Connection, scope: Scope, window: Window, basis: CostBasis) -> dict[str, Decimal]:
    """The scope's closed cost per currency in the quarter hours that start in ``window``: whole UTC days from the day sums, the
    rest from the lines. Usage basis: a tenant's served and wasted work, of a deployment or the platform also unattributed."""
    condition, values = _scope(scope, "x")
    first, after = floor_time(window.start + DAY - timedelta(microseconds=1), DAY), floor_time(window.end, DAY)
    edges = "(x.window_start >= :start AND x.window_start < :end)"
    if first < after:
        edges = "(x.window_start >= :start AND x.window_start < :first_day)"
        edges += " OR (x.window_start >= :after_day AND x.window_start < :end)"
    bound = {"start": window.start, "end": window.end, "first_day": first, "after_day": max(first, after), **values}
    query = _CLOSED.format(
        column="allocated" if basis == "allocation" else "cost", kinds=_kinds(scope, basis), scope=condition, edges=edges
    )
    return {row.currency: row.amount for row in connection.execute(text(query), bound)}


def unpriced_windows(connection: Connection, scope: Scope, window: Window) -> list[tuple[Deployment, int, str]]:
    """Deployments in which the scope has closed quarter hours with tokens and no price: how many, and why."""
    condition, values = _scope(scope, "u")
    rows = connection.execute(text(_UNPRICED.format(scope=condition)), {"start": window.start, "end": window.end, **values})
    return [(Deployment(r.cluster, r.namespace, r.model_id), r.windows, r.reason) for r in rows]


def last_units(connection: Connection, deployment: Deployment, before: datetime) -> RunningUnits | None:
    """Unit rates of the deployment's last closed quarter hour that did any work."""
    row = connection.execute(_LAST_UNITS, {**_key(deployment), "start": before}).first()
    if row is None:
        return None
    source = f"unit rates of the quarter hour {row.window_start.isoformat()} ({row.weight_source})"
    return units_from_text(row.units, row.currency, source)


def freeze_units(connection: Connection, deployment: Deployment, start: datetime, units: RunningUnits) -> None:
    """Keep the unit rates of an open quarter hour; the first to come wins."""
    values = {"start": start, "currency": units.currency, "source": units.source, "units": json.dumps(units.as_text())}
    connection.execute(_FREEZE, {**_key(deployment), **values})


def frozen_units(connection: Connection, deployment: Deployment, start: datetime) -> RunningUnits | None:
    """The unit rates an open quarter hour was estimated with, if anybody asked for its spend."""
    row = connection.execute(_FROZEN, {**_key(deployment), "start": start}).first()
    return None if row is None else _units(row)


def work_so_far(connection: Connection, deployment: Deployment, window: Window) -> WorkSoFar:
    row = connection.execute(_SO_FAR, {**_key(deployment), "start": window.start, "end": window.end}).one()
    busy_us = min(int(row.duration_ms or 0) * 1_000, row.minutes * 60_000_000)
    return WorkSoFar(_work(row), busy_us)


def open_since(connection: Connection) -> dict[Deployment, datetime]:
    """Per deployment of the GPU inventory, where its closed quarter hours end (else when it came into service)."""
    return {Deployment(r.cluster, r.namespace, r.model_id): r.since for r in connection.execute(_OPEN_SINCE)}


def _kinds(scope: Scope, basis: CostBasis) -> str:
    if basis == "allocation":
        return "TRUE"
    own = ("served", "wasted", "unattributed") if scope.kind in ("deployment", "platform") else ("served", "wasted")
    return "x.kind IN (" + ", ".join(f"'{kind}'" for kind in own) + ")"


def _scope(scope: Scope, alias: str) -> tuple[str, dict[str, str]]:
    """A condition on the key columns and its values."""
    columns: Sequence[str] = {
        "tenant": ("org", "team", "project", "user_id"),
        "deployment": ("cluster", "namespace", "model_id"),
        "service_tier": ("service_tier",),
        "platform": (),
    }[scope.kind]
    terms = [f"{alias}.{column} = :scope_{column}" for column, _ in zip(columns, scope.parts, strict=False)]
    return " AND ".join(terms) or "TRUE", {f"scope_{column}": part for column, part in zip(columns, scope.parts, strict=False)}


def _key(deployment: Deployment) -> dict[str, str]:
    return {"cluster": deployment.cluster, "namespace": deployment.namespace, "model_id": deployment.model_id}


def _work(row: Any) -> Work:
    return Work(*(int(v or 0) for v in (row.requests, row.input_uncached, row.input_cached, row.output, row.kv_work_x2)))
