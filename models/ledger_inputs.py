"""What the closes of a deployment's windows read, many windows at once, and which windows are due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from core.allocate import EngineTotals, PeriodWork, UsageSum, Weights, Work
from core.capacity import NodeService, TargetTime
from core.gpu_use import GpuTime
from core.ledger import WindowInputs
from core.node_charge import NodeCharge
from core.rates import BASIS_ORDER, ChargeBasis, Rate
from core.running import RunningUnits, units_from_text
from core.usage import Deployment
from core.windows import Window, floor_time
from core.workfit import FitWindow
from models.rates_repo import services_on_nodes_of

PERIOD = timedelta(hours=24)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
_PLACE = "cluster = :cluster AND namespace = :namespace AND model_id = :model_id"
_IN_RANGE = f"minute >= :start AND minute < :end AND {_PLACE}"
_BIN = "date_bin(CAST(:step AS interval), minute, CAST(:start AS timestamptz)) AS window_start"

_USAGE = text(f"""
    SELECT {_BIN}, org, team, project, user_id, key_id, service_tier, workload_class, status, usage_source,
           CAST(sum(requests) AS bigint), CAST(sum(input_uncached + input_cache_write_5m + input_cache_write_1h) AS bigint),
           CAST(sum(input_cache_read) AS bigint), CAST(sum(output) AS bigint), CAST(sum(kv_work_x2) AS bigint)
    FROM usage_minute WHERE {_IN_RANGE}
    GROUP BY 1, org, team, project, user_id, key_id, service_tier, workload_class, status, usage_source
""")
_BUSY_MINUTES = text(f"""
    SELECT {_BIN}, count(DISTINCT minute) FROM usage_minute WHERE {_IN_RANGE}
    AND input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h + output > 0 GROUP BY 1
""")
_ENGINE_COLUMNS = {
    "prompt": "prompt_tokens", "cached": "prompt_tokens_cached", "computed": "prompt_tokens_computed",
    "generation": "generation_tokens", "prefill_us": "prefill_us", "decode_us": "decode_us",
    "observed_us": "observed_us", "busy_us": "busy_us", "gap_us": "gap_us",
}  # fmt: skip
_ENGINE_SUMS = ", ".join(f"CAST(sum({column}) AS bigint) AS {name}" for name, column in _ENGINE_COLUMNS.items())
_ENGINE = text(f"""
    SELECT {_BIN}, target, count(DISTINCT (target, engine)) AS engines, {_ENGINE_SUMS}
    FROM engine_minute WHERE {_IN_RANGE} GROUP BY 1, target ORDER BY 1, target
""")
_GPU_SUMS = (
    "engine_active_us", "engine_active_seen_us", "sm_active_us", "sm_active_seen_us", "util_us", "util_seen_us",
    "energy_uj", "energy_seen_us", "power_uj", "power_seen_us",
)  # fmt: skip
_GPUS = text(f"""
    SELECT {_BIN}, cluster, node, gpu, mig, pods, {", ".join(f"CAST(sum({name}) AS bigint) AS {name}" for name in _GPU_SUMS)}
    FROM gpu_minute WHERE minute >= :start AND minute < :end AND cluster = :cluster AND node = ANY(CAST(:nodes AS text[]))
    GROUP BY 1, cluster, node, gpu, mig, pods ORDER BY 1, cluster, node, gpu, mig, pods
""")
_PERIOD_FIELDS = ("prefill_us", "decode_us", "computed", "prompt", "cached", "generation")
_FIT = text(f"""
    SELECT minute, busy_us, steps, prompt_tokens_computed AS computed, generation_tokens AS generated, kv_token_steps
    FROM engine_minute
    WHERE {_IN_RANGE} AND observed_us = 60000000 AND busy_us = 60000000 AND gap_us = 0 AND resets = 0 AND steps > 0
    ORDER BY minute, target, engine
""")
_FROZEN = text(f"""
    SELECT window_start, currency, source, units FROM running_rate
    WHERE {_PLACE} AND window_start = ANY(CAST(:starts AS timestamptz[]))
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
_TAKE_DIRTY = text(f"""
    WITH taken AS (
        SELECT window_start FROM dirty_window WHERE {_PLACE} AND window_start = ANY(CAST(:starts AS timestamptz[]))
        ORDER BY window_start FOR UPDATE
    )
    DELETE FROM dirty_window WHERE {_PLACE} AND window_start IN (SELECT window_start FROM taken)
""")


@dataclass(frozen=True, slots=True, order=True)
class DueWindow:
    start: datetime
    deployment: Deployment


@dataclass(frozen=True, slots=True)
class FitMinute:
    """One whole minute of one engine that was observed and busy throughout."""

    minute: datetime
    work: FitWindow


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


def take_dirty(connection: Connection, deployment: Deployment, starts: Sequence[datetime]) -> None:
    """Clear the windows' marks before their inputs are read: what lands after this marks them again.

    Rows are locked in the order in which a loader marks them, so the two wait for each other and never deadlock.
    """
    connection.execute(_TAKE_DIRTY, {**_place(deployment), "starts": list(starts)})


def read_inputs(
    connection: Connection, deployment: Deployment, window: Window, services: Sequence[NodeService], rates: Sequence[Rate]
) -> WindowInputs:
    """All inputs of one window of any length that divides a day; see ``read_batch``."""
    return read_batch(connection, deployment, [window], services, rates)[0]


def read_batch(
    connection: Connection,
    deployment: Deployment,
    windows: Sequence[Window],
    services: Sequence[NodeService],
    rates: Sequence[Rate],
    *,
    fits: Mapping[datetime, Weights | None] | None = None,
    bases: tuple[ChargeBasis, ...] = BASIS_ORDER,
    currency: str = "USD",
    charges: Sequence[NodeCharge] = (),
) -> list[WindowInputs]:
    """Inputs of windows of one length, in time order and whole lengths apart, in a handful of reads whatever their number.

    ``services``, ``rates`` and ``charges`` may hold more than a window needs; services of the whole hours that the windows lie in
    must be among them, for a billed hour is shared over all who held the machine in it. ``fits`` by window start.
    """
    span, step = Window(windows[0].start, windows[-1].end), windows[0].duration
    usage, engine = _usage(connection, deployment, span, step), _engine(connection, deployment, span, step)
    busy = _busy_minutes(connection, deployment, span, step)
    periods = _periods(connection, deployment, windows, engine)
    gpus = _gpus(connection, deployment, {s.node for s in services if s.deployment == deployment}, span, step)
    billed = _billed_hours(deployment, services, charges)
    return [
        WindowInputs(
            deployment=deployment,
            window=window,
            services=services_on_nodes_of(deployment, [s for s in services if s.within(window)]),
            rates=tuple(rates),
            usage=tuple(usage.get(window.start, ())),
            times=tuple(_time(row) for row in engine.get(window.start, ())),
            engine=_totals(engine.get(window.start, ())),
            gateway_busy_ppm=busy.get(window.start, 0) * 1_000_000 // (step // MINUTE),
            periods=periods[window.start],
            fit=(fits or {}).get(window.start),
            bases=bases,
            currency=currency,
            gpus=tuple(gpus.get(window.start, ())),
            charges=billed.get(floor_time(window.start, HOUR), ((), ()))[0],
            hour_services=billed.get(floor_time(window.start, HOUR), ((), ()))[1],
        )
        for window in windows
    ]


def whole_hours(span: Window) -> Window:
    """The UTC hours that ``span`` lies in."""
    return Window(floor_time(span.start, HOUR), floor_time(span.end + HOUR - timedelta(microseconds=1), HOUR))


def _billed_hours(
    deployment: Deployment, services: Sequence[NodeService], charges: Sequence[NodeCharge]
) -> dict[datetime, tuple[tuple[NodeCharge, ...], tuple[NodeService, ...]]]:
    """By hour the charges of the deployment's machines, and everybody who holds those at any time of it."""
    found: dict[datetime, list[NodeCharge]] = defaultdict(list)
    for charge in charges:
        found[charge.hour].append(charge)
    near = {hour: [s for s in services if s.within(Window(hour, hour + HOUR))] for hour in found}
    mine = {hour: {s.node for s in held if s.deployment == deployment and s.node} for hour, held in near.items()}
    return {
        hour: (
            tuple(c for c in group if c.cluster == deployment.cluster and c.node in mine[hour]),
            tuple(s for s in near[hour] if s.deployment.cluster == deployment.cluster and s.node in mine[hour]),
        )
        for hour, group in found.items()
    }


def fit_minutes(connection: Connection, deployment: Deployment, window: Window) -> list[FitMinute]:
    """Minutes in which an engine of the deployment was observed and busy throughout, oldest first."""
    rows = connection.execute(_FIT, {**_place(deployment), "start": window.start, "end": window.end})
    return [FitMinute(minute, FitWindow(*work)) for minute, *work in rows]


def frozen_units_at(connection: Connection, deployment: Deployment, starts: Sequence[datetime]) -> dict[datetime, RunningUnits]:
    """The unit rates that those quarter hours were estimated with whose spend anybody asked for."""
    rows = connection.execute(_FROZEN, {**_place(deployment), "starts": list(starts)})
    return {r.window_start: units_from_text(r.units, r.currency, r.source) for r in rows}


def _place(deployment: Deployment) -> dict[str, Any]:
    return {"cluster": deployment.cluster, "namespace": deployment.namespace, "model_id": deployment.model_id}


def _values(deployment: Deployment, span: Window, step: timedelta) -> dict[str, Any]:
    return {**_place(deployment), "start": span.start, "end": span.end, "step": step}


def _usage(connection: Connection, deployment: Deployment, span: Window, step: timedelta) -> dict[datetime, list[UsageSum]]:
    found: dict[datetime, list[UsageSum]] = defaultdict(list)
    for row in connection.execute(_USAGE, _values(deployment, span, step)):
        start, org, team, project, user, key_id, tier, workload_class, status, source, *sums = row
        work = Work(*sums)
        if work.requests or work.input_uncached or work.input_cached or work.output:
            found[start].append(UsageSum(org, team, project, user, key_id, tier, workload_class, status, source, work))
    return found


def _busy_minutes(connection: Connection, deployment: Deployment, span: Window, step: timedelta) -> dict[datetime, int]:
    return {start: int(count) for start, count in connection.execute(_BUSY_MINUTES, _values(deployment, span, step))}


def _engine(connection: Connection, deployment: Deployment, span: Window, step: timedelta) -> dict[datetime, list[Row[Any]]]:
    found: dict[datetime, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_ENGINE, _values(deployment, span, step)):
        found[row.window_start].append(row)
    return found


def _gpus(
    connection: Connection, deployment: Deployment, nodes: Collection[str], span: Window, step: timedelta
) -> dict[datetime, list[GpuTime]]:
    """What GPU exporters said of the deployment's nodes."""
    found: dict[datetime, list[GpuTime]] = defaultdict(list)
    if nodes:
        for start, *row in connection.execute(_GPUS, {**_values(deployment, span, step), "nodes": sorted(nodes)}):
            found[start].append(GpuTime(*row))
    return found


def _time(row: Row[Any]) -> TargetTime:
    return TargetTime(row.target, row.observed_us // row.engines, row.busy_us // row.engines, row.gap_us // row.engines)


def _totals(rows: Sequence[Row[Any]]) -> EngineTotals | None:
    """None when no engine was watched at all: a sample alone (a baseline) has no time yet."""
    if not any(row.observed_us or row.gap_us for row in rows):
        return None
    return EngineTotals(*(sum(getattr(row, name) for row in rows) for name in ("prompt", "cached", "generation")))


def _periods(
    connection: Connection, deployment: Deployment, windows: Sequence[Window], engine: Mapping[datetime, Sequence[Row[Any]]]
) -> dict[datetime, tuple[PeriodWork, ...]]:
    """Each window's own work and, where that is too little to tell, that of the 24 h to its end."""
    own = {w.start: _period("this quarter hour", [_period_sums(engine.get(w.start, ()))]) for w in windows}
    silent = [w for w in windows if not own[w.start].tells()]
    found: dict[datetime, tuple[PeriodWork, ...]] = {start: (period,) for start, period in own.items()}
    if not silent:
        return found
    step = silent[0].duration
    rows = _engine(connection, deployment, Window(silent[0].end - PERIOD, silent[-1].end), step)
    sums = {start: _period_sums(part) for start, part in rows.items()}
    for window in silent:
        near = [sums[at] for n in range(PERIOD // step) if (at := window.start - n * step) in sums]
        found[window.start] = (own[window.start], _period("24 h to the window's end", near))
    return found


def _period_sums(rows: Sequence[Row[Any]]) -> tuple[int, ...]:
    return tuple(sum(getattr(row, name) for row in rows) for name in _PERIOD_FIELDS)


def _period(name: str, parts: Sequence[tuple[int, ...]]) -> PeriodWork:
    totals = [sum(part[n] for part in parts) for n in range(len(_PERIOD_FIELDS))]
    prefill_us, decode_us, computed, prompt, cached, generation = totals
    return PeriodWork(name, prefill_us, decode_us, computed or prompt - cached, generation)
