"""What the minutes around a difference say: work booked on the other side of a border, time no engine was seen, restarts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from core.reconcile import Evidence, minute_edge
from core.usage import Deployment
from core.windows import Window
from models.reconcile_repo import INPUT_SQL, VENDOR, Key, Question, Views
from models.usage_keys import filter_sql
from models.usage_pieces import Level

EDGE = timedelta(minutes=5)
"""How far from a border work is looked for that the gateway booked on its other side."""
MOST_BORDERS = 24 * 8 + 1
"""More steps than a week of hours are read without their borders: their requests across them stay ``unfinished``."""
MINUTE_SPAN, HOUR_SPAN = timedelta(days=2), timedelta(days=62)
"""A window up to this long is looked at by the minute, or the hour, for time no engine was seen in; a longer one by the day."""
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
# A step is found by its place among the sorted starts: a join by range would compare every row with every step.
_EXCESS = """
    WITH booked AS (
        SELECT cluster, namespace, model_id, {level} AS at, width_bucket({level}, CAST(:starts AS timestamptz[])) AS step,
               sum({input}) AS tokens_in, sum(output) AS tokens_out
        FROM {usage} WHERE {level} >= :first AND {level} < :last GROUP BY 1, 2, 3, 4, 5
    ),
    seen AS (
        SELECT cluster, namespace, model_id, {level} AS at, width_bucket({level}, CAST(:starts AS timestamptz[])) AS step,
               sum(observed_us + gap_us) AS time_us, sum(resets) AS resets
        FROM engine_{level} WHERE {level} >= :first AND {level} < :last GROUP BY 1, 2, 3, 4, 5
    )
    SELECT b.cluster, b.namespace, b.model_id, b.step,
           coalesce(sum(b.tokens_in) FILTER (WHERE coalesce(e.time_us, 0) = 0), 0)::bigint,
           coalesce(sum(b.tokens_out) FILTER (WHERE coalesce(e.time_us, 0) = 0), 0)::bigint,
           coalesce(sum(b.tokens_in) FILTER (WHERE {restarted}), 0)::bigint,
           coalesce(sum(b.tokens_out) FILTER (WHERE {restarted}), 0)::bigint
    FROM booked b LEFT JOIN seen e USING (cluster, namespace, model_id, at, step) {after}
    WHERE b.at < (CAST(:ends AS timestamptz[]))[b.step] GROUP BY 1, 2, 3, 4
"""


_AFTER = """LEFT JOIN seen after ON (after.cluster, after.namespace, after.model_id, after.step, after.at)
        = (b.cluster, b.namespace, b.model_id, b.step, b.at + interval '1 minute')"""
"""By the minute, what was booked just before a restart counts as booked in it."""


_USAGE = {"minute": "usage_minute", "hour": "usage_deployment_hour"}


def read_evidence(connection: Connection, question: Question, views: Mapping[Key, Views]) -> dict[Key, Evidence]:
    """For every deployment and step with an engine view; steps of a minute are read without."""
    if question.time_key == "minute":
        return {}
    spans = {key: question.span(key.step) for key, found in views.items() if found.engine is not None}
    edges = _edges(connection, question, {at for span in spans.values() for at in (span.start, span.end)})
    short = {key: span for key, span in spans.items() if _gateway_has_more(views[key])}
    excess = _excess(connection, short, _level(question.window))
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


def _level(window: Window) -> Level:
    return "minute" if window.duration <= MINUTE_SPAN else "hour" if window.duration <= HOUR_SPAN else "day"


def _excess(connection: Connection, spans: Mapping[Key, Window], level: Level) -> dict[Key, Counts]:
    if not spans:
        return {}
    steps = sorted({(span.start, span.end) for span in spans.values()})
    numbers = {step: n for n, step in enumerate(steps, start=1)}
    places = {(key.deployment, numbers[span.start, span.end]): key for key, span in spans.items()}
    values = {"starts": [start for start, _ in steps], "ends": [end for _, end in steps]}
    bounds = {"first": steps[0][0], "last": steps[-1][1]}
    named = {"usage": f"usage_deployment_{level}", "after": "", "restarted": "e.resets > 0"}
    if level == "minute":
        named = {"usage": "usage_minute", "after": _AFTER, "restarted": "e.resets > 0 OR after.resets > 0"}
    rows = connection.execute(text(_EXCESS.format(level=level, input=INPUT_SQL, **named)), {**values, **bounds})
    found = {(Deployment(*row[:3]), row[3]): (row[4], row[5], row[6], row[7]) for row in rows}
    return {key: found[place] for place, key in places.items() if place in found}
