"""What a window's close reads: usage and engine sums of one deployment, and which windows are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from core.allocate import EngineTotals, PeriodWork, UsageSum, Weights, Work
from core.capacity import NodeService, TargetTime
from core.ledger import WindowInputs
from core.rates import BASIS_ORDER, ChargeBasis, Rate
from core.usage import Deployment
from core.windows import Window
from core.workfit import FitWindow
from models.rates_repo import services_on_nodes_of

PERIOD = timedelta(hours=24)
_IN_WINDOW = "minute >= :start AND minute < :end AND cluster = :cluster AND namespace = :namespace AND model_id = :model_id"

_USAGE = text(f"""
    SELECT org, team, project, user_id, key_id, service_tier, workload_class, status, usage_source,
           sum(requests) AS requests, sum(input_uncached + input_cache_write_5m + input_cache_write_1h) AS input_uncached,
           sum(input_cache_read) AS input_cached, sum(output) AS output, sum(kv_work_x2) AS kv_work_x2
    FROM usage_minute WHERE {_IN_WINDOW}
    GROUP BY org, team, project, user_id, key_id, service_tier, workload_class, status, usage_source
""")
_BUSY_MINUTES = text(f"""
    SELECT count(DISTINCT minute) FROM usage_minute WHERE {_IN_WINDOW}
    AND input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h + output > 0
""")
_ENGINE_SUMS = """
    count(DISTINCT (target, engine)) AS engines, sum(observed_us) AS observed_us, sum(busy_us) AS busy_us, sum(gap_us) AS gap_us,
    sum(prompt_tokens) AS prompt, sum(prompt_tokens_cached) AS cached, sum(prompt_tokens_computed) AS computed,
    sum(generation_tokens) AS generation, sum(prefill_us) AS prefill_us, sum(decode_us) AS decode_us
"""
_ENGINE = text(f"SELECT target, {_ENGINE_SUMS} FROM engine_minute WHERE {_IN_WINDOW} GROUP BY target ORDER BY target")
_ENGINE_PERIOD = text(f"SELECT {_ENGINE_SUMS} FROM engine_minute WHERE {_IN_WINDOW}")
_FIT = text(f"""
    SELECT busy_us, steps, prompt_tokens_computed AS computed, generation_tokens AS generated, kv_token_steps
    FROM engine_minute
    WHERE {_IN_WINDOW} AND observed_us = 60000000 AND busy_us = 60000000 AND gap_us = 0 AND resets = 0 AND steps > 0
    ORDER BY minute, target, engine
""")
_DUE = text("""
    WITH data AS (
        SELECT cluster, namespace, model_id, date_bin('15 minutes', minute, TIMESTAMPTZ 'epoch') AS window_start
        FROM usage_minute WHERE minute >= :data_from AND minute < :due_end
        UNION
        SELECT cluster, namespace, model_id, date_bin('15 minutes', minute, TIMESTAMPTZ 'epoch')
        FROM engine_minute WHERE minute >= :data_from AND minute < :due_end
    ), closed AS (
        SELECT cluster, namespace, model_id, max(window_start) AS last FROM ledger_head GROUP BY 1, 2, 3
    ), held AS (
        SELECT s.cluster, s.namespace, s.model_id, generate_series(
            greatest(
                date_bin('15 minutes', s.in_service_from, TIMESTAMPTZ 'epoch'),
                coalesce(CAST(:since AS timestamptz), c.last + interval '15 minutes', '-infinity')
            ),
            least(CAST(:due_end AS timestamptz), coalesce(s.in_service_to, :due_end)) - interval '1 microsecond',
            interval '15 minutes'
        ) AS window_start
        FROM node_service s LEFT JOIN closed c USING (cluster, namespace, model_id)
    ), candidates AS (
        SELECT * FROM data d WHERE CAST(:since AS timestamptz) IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM ledger_head h WHERE (h.cluster, h.namespace, h.model_id, h.window_start)
                = (d.cluster, d.namespace, d.model_id, d.window_start)
        )
        UNION SELECT * FROM held
        UNION SELECT cluster, namespace, model_id, window_start FROM dirty_window
    )
    SELECT cluster, namespace, model_id, window_start FROM candidates
    WHERE window_start + interval '15 minutes' <= :due_end ORDER BY window_start, cluster, namespace, model_id LIMIT :limit
""")
_TAKE_DIRTY = text("""
    DELETE FROM dirty_window
    WHERE cluster = :cluster AND namespace = :namespace AND model_id = :model_id AND window_start = :start
""")


@dataclass(frozen=True, slots=True, order=True)
class DueWindow:
    start: datetime
    deployment: Deployment


def due_windows(
    connection: Connection, due_end: datetime, *, since: datetime | None, data_from: datetime, limit: int
) -> list[DueWindow]:
    """Windows that end by ``due_end`` and are to be closed, oldest first.

    Dirty windows of any age; quarter hours of the GPU inventory after the deployment's last closed one; quarter hours with data
    since ``data_from`` that were never closed. With ``since``, every quarter hour from there on, closed or not.
    """
    values = {"due_end": due_end, "since": since, "data_from": since or data_from, "limit": limit}
    rows = connection.execute(_DUE, values)
    return [DueWindow(r.window_start, Deployment(r.cluster, r.namespace, r.model_id)) for r in rows]


def take_dirty(connection: Connection, deployment: Deployment, start: datetime) -> None:
    """Clear the window's mark before its inputs are read: what lands after this marks it again."""
    connection.execute(_TAKE_DIRTY, _values(deployment, start, start))


def read_inputs(
    connection: Connection,
    deployment: Deployment,
    window: Window,
    services: Sequence[NodeService],
    rates: Sequence[Rate],
    *,
    fit: Weights | None = None,
    bases: tuple[ChargeBasis, ...] = BASIS_ORDER,
    currency: str = "USD",
) -> WindowInputs:
    """All inputs of one window. ``services`` and ``rates`` may hold more than this window needs."""
    values = _values(deployment, window.start, window.end)
    usage = tuple(_usage(row) for row in connection.execute(_USAGE, values) if _counts(row))
    engine_rows = list(connection.execute(_ENGINE, values))
    minutes = window.duration // timedelta(minutes=1)
    return WindowInputs(
        deployment=deployment,
        window=window,
        services=services_on_nodes_of(deployment, [s for s in services if s.within(window)]),
        rates=tuple(rates),
        usage=usage,
        times=tuple(_time(row) for row in engine_rows),
        engine=_totals(engine_rows),
        gateway_busy_ppm=_scalar(connection, values) * 1_000_000 // minutes,
        periods=_periods(connection, deployment, window, engine_rows),
        fit=fit,
        bases=bases,
        currency=currency,
    )


def fit_windows(connection: Connection, deployment: Deployment, window: Window) -> list[FitWindow]:
    """Minutes in which an engine of the deployment was observed and busy throughout, oldest first."""
    rows = connection.execute(_FIT, _values(deployment, window.start, window.end))
    return [FitWindow(int(r.busy_us), int(r.steps), int(r.computed), int(r.generated), int(r.kv_token_steps)) for r in rows]


def _values(deployment: Deployment, start: datetime, end: datetime) -> dict[str, Any]:
    d = deployment
    return {"cluster": d.cluster, "namespace": d.namespace, "model_id": d.model_id, "start": start, "end": end}


def _scalar(connection: Connection, values: dict[str, Any]) -> int:
    return int(connection.execute(_BUSY_MINUTES, values).scalar_one())


def _counts(row: Row[Any]) -> bool:
    return any((row.requests, row.input_uncached, row.input_cached, row.output))


def _usage(row: Row[Any]) -> UsageSum:
    work = Work(*(int(v) for v in (row.requests, row.input_uncached, row.input_cached, row.output, row.kv_work_x2)))
    return UsageSum(
        row.org, row.team, row.project, row.user_id, row.key_id, row.service_tier, row.workload_class,
        row.status, row.usage_source, work,
    )  # fmt: skip


def _time(row: Row[Any]) -> TargetTime:
    observed, busy, gap = (int(v) // row.engines for v in (row.observed_us, row.busy_us, row.gap_us))
    return TargetTime(row.target, observed, busy, gap)


def _totals(rows: Sequence[Row[Any]]) -> EngineTotals | None:
    """None when no engine was watched at all: a sample alone (a baseline) has no time yet."""
    if not any(row.observed_us or row.gap_us for row in rows):
        return None
    return EngineTotals(*(sum(int(getattr(row, name)) for row in rows) for name in ("prompt", "cached", "generation")))


def _periods(
    connection: Connection, deployment: Deployment, window: Window, engine_rows: Sequence[Row[Any]]
) -> tuple[PeriodWork, ...]:
    own = _period("this quarter hour", engine_rows)
    if own.tells():
        return (own,)
    longer = list(connection.execute(_ENGINE_PERIOD, _values(deployment, window.end - PERIOD, window.end)))
    return (own, _period("24 h to the window's end", longer))


def _period(name: str, rows: Sequence[Row[Any]]) -> PeriodWork:
    sums = {
        field: sum(int(getattr(row, field) or 0) for row in rows)
        for field in ("prefill_us", "decode_us", "computed", "prompt", "cached", "generation")
    }
    computed = sums["computed"] or sums["prompt"] - sums["cached"]
    return PeriodWork(name, sums["prefill_us"], sums["decode_us"], computed, sums["generation"])
