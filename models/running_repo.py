"""Fast reads for spend between closes, on every loader commit: open work, frozen unit rates."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from core.allocate import Work
from core.running import RunningUnits, units_from_text
from core.scopes import Scope
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window, floor_time
from models.asked_scopes import asked_scopes

Place = tuple[Deployment, datetime]
"""A deployment and the start of one of its quarter hours."""
RECENT = timedelta(minutes=45)
"""Quarter hours this young are looked at even if nothing marked them."""

_OPEN = text("""
    WITH marked AS (
        SELECT cluster, namespace, model_id, window_start FROM dirty_window WHERE window_start >= :since AND window_start < :until
        UNION
        SELECT s.cluster, s.namespace, s.model_id, q FROM node_service s,
            generate_series(greatest(:recent, :since), least(:now, :until) - interval '1 microsecond', interval '15 minutes') q
    )
    SELECT m.cluster, m.namespace, m.model_id, m.window_start, r.currency, r.source, r.units
    FROM marked m LEFT JOIN running_rate r USING (cluster, namespace, model_id, window_start)
    WHERE NOT EXISTS (
        SELECT 1 FROM ledger_head h WHERE (h.cluster, h.namespace, h.model_id, h.window_start)
            = (m.cluster, m.namespace, m.model_id, m.window_start)
    )
""")
_WORK = """
    SELECT a.n, u.cluster, u.namespace, u.model_id, date_bin('15 minutes', u.minute, TIMESTAMPTZ 'epoch') AS window_start,
           sum(u.requests) AS requests, sum(u.input_uncached + u.input_cache_write_5m + u.input_cache_write_1h) AS input_uncached,
           sum(u.input_cache_read) AS input_cached, sum(u.output) AS output, sum(u.kv_work_x2) AS kv_work_x2
    FROM unnest(CAST(:since AS timestamptz[]), CAST(:until AS timestamptz[])) AS span(since, until), {asked}
    JOIN usage_minute u ON {holds}
    WHERE u.minute >= :first AND u.minute < :last AND u.minute >= span.since AND u.minute < span.until
    GROUP BY 1, 2, 3, 4, 5
"""
_LAST_UNITS = text("""
    SELECT p.cluster, p.namespace, p.model_id, p.start, l.window_start, l.currency, l.weight_source, l.units
    FROM unnest(CAST(:cluster AS text[]), CAST(:namespace AS text[]), CAST(:model_id AS text[]), CAST(:start AS timestamptz[]))
        AS p(cluster, namespace, model_id, start)
    JOIN LATERAL (
        SELECT w.window_start, w.currency, w.weight_source, w.detail -> 'running' AS units
        FROM ledger_window w
        WHERE w.cluster = p.cluster AND w.namespace = p.namespace AND w.model_id = p.model_id AND w.window_start < p.start
            AND jsonb_typeof(w.detail -> 'running') = 'object'
            AND w.version = (
                SELECT h.version FROM ledger_head h
                WHERE (h.cluster, h.namespace, h.model_id, h.window_start) = (w.cluster, w.namespace, w.model_id, w.window_start)
            )
        ORDER BY w.window_start DESC LIMIT 1
    ) l ON TRUE
""")
_FREEZE = text("""
    INSERT INTO running_rate (cluster, namespace, model_id, window_start, currency, source, units)
    VALUES (:cluster, :namespace, :model_id, :start, :currency, :source, CAST(:units AS jsonb))
    ON CONFLICT (cluster, namespace, model_id, window_start) DO NOTHING
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
    """What the scope at place ``n`` of those asked for did in one open quarter hour of one deployment."""

    n: int
    place: Place
    work: Work


@dataclass(frozen=True, slots=True)
class WorkSoFar:
    """Gateway work of a period; ``busy_us`` is at most the time requests took and at most the minutes with any."""

    work: Work
    busy_us: int


def open_places(connection: Connection, window: Window, now: datetime) -> dict[Place, RunningUnits | None]:
    """The quarter hours of ``window`` that no close has priced yet, with the unit rates frozen for them (None: not yet)."""
    recent = floor_time(now, QUARTER_HOUR) - RECENT
    bound = {"since": floor_time(window.start, QUARTER_HOUR), "until": window.end, "recent": recent, "now": now}
    return {(Deployment(r.cluster, r.namespace, r.model_id), r.window_start): _units(r) for r in connection.execute(_OPEN, bound)}


def open_work(connection: Connection, scopes: Sequence[Scope], places: Collection[Place]) -> list[OpenWork]:
    """The work of each scope in each of these quarter hours; nothing for none."""
    spans = _ranges({start for _, start in places})
    if not spans or not scopes:
        return []
    values: dict[str, Any] = {"first": spans[0][0], "last": spans[-1][1]}
    values |= {"since": [since for since, _ in spans], "until": [until for _, until in spans]}
    parts: list[str] = []
    for asked in asked_scopes(scopes, {"n": ("integer", range(len(scopes)))}):
        parts.append(_WORK.format(asked=asked.relation, holds=asked.holds("u")))
        values |= asked.values
    rows = connection.execute(text(" UNION ALL ".join(parts)), values)
    found = (OpenWork(r.n, (Deployment(r.cluster, r.namespace, r.model_id), r.window_start), _work(r)) for r in rows)
    return [row for row in found if row.place in places]


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


def last_units(connection: Connection, places: Sequence[Place]) -> dict[Place, RunningUnits]:
    """For each place the unit rates of its deployment's last closed quarter hour before it that did any work, if there is one."""
    keys = [{**_key(deployment), "start": start} for deployment, start in places]
    columns = {name: [key[name] for key in keys] for name in ("cluster", "namespace", "model_id", "start")}
    found: dict[Place, RunningUnits] = {}
    for row in connection.execute(_LAST_UNITS, columns):
        source = f"unit rates of the quarter hour {row.window_start.isoformat()} ({row.weight_source})"
        place = Deployment(row.cluster, row.namespace, row.model_id), row.start
        found[place] = units_from_text(row.units, row.currency, source)
    return found


def freeze_units(connection: Connection, frozen: Mapping[Place, RunningUnits]) -> None:
    """Keep the unit rates of open quarter hours; the first to come wins. In the places' order, so that two never wait for each
    other."""
    rows = [
        {**_key(deployment), "start": start, "currency": u.currency, "source": u.source, "units": json.dumps(u.as_text())}
        for (deployment, start), u in sorted(frozen.items(), key=lambda item: item[0])
    ]
    if rows:
        connection.execute(_FREEZE, rows)


def work_so_far(connection: Connection, deployment: Deployment, window: Window) -> WorkSoFar:
    row = connection.execute(_SO_FAR, {**_key(deployment), "start": window.start, "end": window.end}).one()
    busy_us = min(int(row.duration_ms or 0) * 1_000, row.minutes * 60_000_000)
    return WorkSoFar(_work(row), busy_us)


def open_since(connection: Connection) -> dict[Deployment, datetime]:
    """Per deployment of the GPU inventory, where its closed quarter hours end (else when it came into service)."""
    return {Deployment(r.cluster, r.namespace, r.model_id): r.since for r in connection.execute(_OPEN_SINCE)}


def _key(deployment: Deployment) -> dict[str, str]:
    return {"cluster": deployment.cluster, "namespace": deployment.namespace, "model_id": deployment.model_id}


def _work(row: Any) -> Work:
    return Work(*(int(v or 0) for v in (row.requests, row.input_uncached, row.input_cached, row.output, row.kv_work_x2)))
