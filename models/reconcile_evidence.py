"""What the minutes around a difference say: work booked on the other side of a border, time no engine was seen, restarts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from core.reconcile import Evidence, minute_edge
from core.usage import Deployment
from core.windows import Window
from models.reconcile_repo import INPUT_SQL, VENDOR, Key, Question, Views
from models.usage_keys import filter_sql

EDGE = timedelta(minutes=5)
"""How far from a border work is looked for that the gateway booked on its other side."""
MOST_BORDERS = 24 * 31 + 1
"""More steps than a month of hours are read without their borders: their requests across them stay ``unfinished``."""
MINUTE_SPAN = timedelta(days=2)
"""Steps up to this long are looked at by the minute for time no engine was seen in, longer ones by the hour."""
Edges = Mapping[tuple[datetime, Deployment], tuple[int, int]]
Counts = tuple[int, int, int, int]

_EDGES = """
    SELECT b.at, m.cluster, m.namespace, m.model_id,
           coalesce(sum(m.tokens_in) FILTER (WHERE m.minute < b.at), 0)::bigint AS before_in,
           coalesce(sum(m.tokens_in) FILTER (WHERE m.minute >= b.at), 0)::bigint AS after_in,
           coalesce(sum(m.tokens_out) FILTER (WHERE m.minute < b.at), 0)::bigint AS before_out,
           coalesce(sum(m.tokens_out) FILTER (WHERE m.minute >= b.at), 0)::bigint AS after_out
    FROM unnest(CAST(:borders AS timestamptz[])) AS b (at)
    CROSS JOIN LATERAL (
        SELECT minute, cluster, namespace, model_id, prompt_tokens AS tokens_in, generation_tokens AS tokens_out
        FROM engine_minute WHERE minute >= b.at - CAST(:edge AS interval) AND minute < b.at + CAST(:edge AS interval){where}
        UNION ALL
        SELECT minute, cluster, namespace, model_id, -({input} + repeated_input), -output
        FROM usage_minute WHERE minute >= b.at - CAST(:edge AS interval) AND minute < b.at + CAST(:edge AS interval)
        AND cluster <> :vendor{where}
    ) AS m
    GROUP BY b.at, m.cluster, m.namespace, m.model_id
"""
_EXCESS = """
    WITH span AS (
        SELECT * FROM unnest(
            CAST(:clusters AS varchar[]), CAST(:namespaces AS varchar[]), CAST(:models AS varchar[]),
            CAST(:starts AS timestamptz[]), CAST(:ends AS timestamptz[])
        ) WITH ORDINALITY AS s (cluster, namespace, model_id, start, "end", n)
    ),
    booked AS (
        SELECT s.n, u.{level} AS at, sum({input}) AS tokens_in, sum(u.output) AS tokens_out
        FROM span s JOIN {usage} u USING (cluster, namespace, model_id)
        WHERE u.{level} >= s.start AND u.{level} < s."end" AND u.{level} >= :first AND u.{level} < :last GROUP BY s.n, u.{level}
    ),
    seen AS (
        SELECT s.n, e.{level} AS at, sum(e.observed_us + e.gap_us) AS time_us, sum(e.resets) AS resets
        FROM span s JOIN engine_{level} e USING (cluster, namespace, model_id)
        WHERE e.{level} >= s.start AND e.{level} < s."end" AND e.{level} >= :first AND e.{level} < :last GROUP BY s.n, e.{level}
    )
    SELECT b.n, coalesce(sum(b.tokens_in) FILTER (WHERE coalesce(e.time_us, 0) = 0), 0)::bigint,
           coalesce(sum(b.tokens_out) FILTER (WHERE coalesce(e.time_us, 0) = 0), 0)::bigint,
           coalesce(sum(b.tokens_in) FILTER (WHERE e.resets > 0 OR after.resets > 0), 0)::bigint,
           coalesce(sum(b.tokens_out) FILTER (WHERE e.resets > 0 OR after.resets > 0), 0)::bigint
    FROM booked b LEFT JOIN seen e USING (n, at)
    LEFT JOIN seen after ON after.n = b.n AND after.at = b.at + interval '1 minute'
    GROUP BY b.n
"""


def read_evidence(connection: Connection, question: Question, views: Mapping[Key, Views]) -> dict[Key, Evidence]:
    """For every deployment and step with an engine view; steps of a minute are read without."""
    if question.time_key == "minute":
        return {}
    spans = {key: question.span(key.step) for key, found in views.items() if found.engine is not None}
    edges = _edges(connection, question, {at for span in spans.values() for at in (span.start, span.end)})
    short = {key: span for key, span in spans.items() if _gateway_has_more(views[key])}
    excess = _excess(connection, {k: s for k, s in short.items() if s.duration <= MINUTE_SPAN}, "minute")
    excess |= _excess(connection, {k: s for k, s in short.items() if s.duration > MINUTE_SPAN}, "hour")
    return {key: Evidence(*_crossed(edges, span, key.deployment), *excess.get(key, (0, 0, 0, 0))) for key, span in spans.items()}


def _gateway_has_more(found: Views) -> bool:
    """Whether any of what is not explained by failed work may be an excess of the gateway."""
    engine, gateway = found.engine, found.gateway
    if engine is None:
        return False
    return (
        _finished(engine.prompt, engine.finished_prompt) < gateway.tokens_in - gateway.failed_in + gateway.repeated
        or _finished(engine.generation, engine.finished_generation) < gateway.tokens_out - gateway.failed_out
    )


def _finished(counted: int, finished: int | None) -> int:
    return counted if finished is None else finished


def _edges(connection: Connection, question: Question, borders: Collection[datetime]) -> Edges:
    if not borders or len(borders) > MOST_BORDERS:
        return {}
    where, values = filter_sql(question.filters)
    values |= {"borders": sorted(borders), "edge": EDGE, "vendor": VENDOR}
    rows = connection.execute(text(_EDGES.format(where=where, input=INPUT_SQL)), values)
    return {
        (row.at, Deployment(row.cluster, row.namespace, row.model_id)): (
            minute_edge(row.before_in, row.after_in),
            minute_edge(row.before_out, row.after_out),
        )
        for row in rows
    }


def _crossed(edges: Edges, span: Window, deployment: Deployment) -> tuple[int, int]:
    """What crossed the end, less what crossed the start."""
    end, start = (edges.get((at, deployment), (0, 0)) for at in (span.end, span.start))
    return end[0] - start[0], end[1] - start[1]


def _excess(connection: Connection, spans: Mapping[Key, Window], level: str) -> dict[Key, Counts]:
    if not spans:
        return {}
    keys = list(spans)
    values: dict[str, Any] = {
        "clusters": [key.deployment.cluster for key in keys],
        "namespaces": [key.deployment.namespace for key in keys],
        "models": [key.deployment.model_id for key in keys],
        "starts": [spans[key].start for key in keys],
        "ends": [spans[key].end for key in keys],
        "first": min(span.start for span in spans.values()),
        "last": max(span.end for span in spans.values()),
    }
    usage = "usage_minute" if level == "minute" else f"usage_deployment_{level}"
    rows = connection.execute(text(_EXCESS.format(level=level, usage=usage, input=INPUT_SQL)), values)
    return {keys[row[0] - 1]: (int(row[1]), int(row[2]), int(row[3]), int(row[4])) for row in rows}
