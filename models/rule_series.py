"""The metrics' sums (``core.rule_metrics``) over the rollups, window by window and scope by scope.

Priced metrics use one unit price per deployment for all windows (``models.decision_price_repo``): neither a new price nor a new
fit moves a window against another. A tenant's work on deployments of several currencies, or on one without a price, has no cost
(not known).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from core.feature_figures import p90_bucket
from core.rule_metrics import METRICS, Source
from core.scopes import parse_scope
from core.series import Point
from core.windows import Window, floor_time
from models.decision_price_repo import UnitPrice
from models.scope_usage import DEPLOYMENT_COLUMNS, TENANT_COLUMNS
from models.usage_pieces import Level
from models.usage_rollups import ENGINE, USAGE, rollup_rows

_TOKENS = "input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h + output"
_INPUT = "input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h"
_KNOWN_COST = "CASE WHEN count(*) = count(cost) AND count(DISTINCT currency) = 1 THEN sum(cost) END"
_KV_FULL = "CASE WHEN sum(kv_capacity_us) > 0 THEN sum(kv_token_us) ELSE sum(kv_full_us) END"
_KV_SEEN = "CASE WHEN sum(kv_capacity_us) > 0 THEN sum(kv_capacity_us) ELSE sum(kv_seen_us) END"
_HITS = "CASE WHEN sum(prefix_queries) > 0 THEN sum(prefix_hits) ELSE sum(prompt_tokens_cached) END"
_LOOKED = "CASE WHEN sum(prefix_queries) > 0 THEN sum(prefix_queries) ELSE sum(prompt_tokens_cached + prompt_tokens_computed) END"
_FINISHED = "CASE WHEN finished_generation_tokens > 0 THEN finished_generation_tokens ELSE generation_tokens END"
_LATER = f"sum(greatest(0, {_FINISHED} - requests_finished))"
SUMS: Mapping[str, tuple[str, str, float]] = {
    "unit_cost": (_KNOWN_COST, "sum(prompt_tokens + generation_tokens)", 1e6),
    "tenant_unit_cost": (_KNOWN_COST, f"sum({_TOKENS})", 1e6),
    "spend_rate": (_KNOWN_COST, ":minutes", 60.0),
    "requests": ("sum(requests)", ":minutes", 1.0),
    "tokens": (f"sum({_TOKENS})", ":minutes", 1.0),
    "tokens_per_request": (f"sum({_TOKENS})", "sum(requests)", 1.0),
    "input_per_request": (f"sum({_INPUT})", "sum(requests)", 1.0),
    "output_per_request": ("sum(output)", "sum(requests)", 1.0),
    "failed_share": ("coalesce(sum(requests) FILTER (WHERE status IN ('error', 'aborted')), 0)", "sum(requests)", 1.0),
    "cached_share": ("sum(input_cache_read)", f"sum({_INPUT})", 1.0),
    "kv_use": (_KV_FULL, _KV_SEEN, 1.0),
    "preemptions": ("sum(preemptions)", ":minutes", 1.0),
    "hit_rate": (_HITS, _LOOKED, 1.0),
    "decode_ms_per_token": ("nullif(sum(decode_us), 0)", _LATER, 1e-3),
    "prefill_ms_per_token": ("nullif(sum(prefill_us), 0)", "sum(prompt_tokens_computed)", 1e-3),
    "batch_gap": ("sum(observed_us - busy_us)", "sum(busy_us)", 1.0),
    "idle_share": ("sum(observed_us - busy_us)", "sum(observed_us)", 1.0),
    "waiting_share": ("sum(saturated_us)", "sum(observed_us)", 1.0),
    "running_mean": ("sum(running_us)", "sum(busy_us)", 1.0),
    "memory_fragmentation": ("sum(torch_reserved_mib_us - torch_allocated_mib_us)", "sum(torch_reserved_mib_us)", 1.0),
}
"""Metric -> numerator, denominator, factor. ``over_p90_share`` is counted in Python: its limit is of the week before."""
_COLUMNS: Mapping[Source, str] = {
    "usage": "requests, input_uncached, input_cache_read, input_cache_write_5m, input_cache_write_1h, output, kv_work_x2, status",
    "engine": "prompt_tokens, generation_tokens, prompt_tokens_cached, prompt_tokens_computed, requests_finished, "
    "finished_generation_tokens, preemptions, prefix_queries, prefix_hits, prefill_us, decode_us, observed_us, busy_us, "
    "saturated_us, running_us, kv_token_us, kv_capacity_us, kv_full_us, kv_seen_us, "
    "torch_reserved_mib_us, torch_allocated_mib_us",
}
_TOKENS_OF: Mapping[Source, str] = {"usage": f"sum({_TOKENS})", "engine": "sum(prompt_tokens + generation_tokens)"}
_COST: Mapping[Source, str] = {
    "usage": "price.input * (input_uncached + input_cache_write_5m + input_cache_write_1h) + price.cached * input_cache_read "
    "+ price.output * part.output + price.kv * kv_work_x2",
    "engine": "price.busy_us * part.busy_us",
}
_PRICES = """
    unnest(CAST(:p_cluster AS text[]), CAST(:p_namespace AS text[]), CAST(:p_model AS text[]), CAST(:p_currency AS text[]),
        CAST(:p_input AS float8[]), CAST(:p_cached AS float8[]), CAST(:p_output AS float8[]), CAST(:p_kv AS float8[]),
        CAST(:p_busy AS float8[])) AS price(cluster, namespace, model_id, currency, input, cached, output, kv, busy_us)
"""
P90_BEFORE = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class ScopePoints:
    """A scope's windows in order of time; ``currency`` of a priced metric, else ''."""

    points: Sequence[Point]
    currency: str = ""


def read_points(
    connection: Connection, metric: str, scope: str, window: Window, step: timedelta, prices: Sequence[UnitPrice] = (),
    inside: str = "",
) -> dict[str, ScopePoints]:  # fmt: skip
    """The metric of a scope (or of each of a kind: ``core.rules.EACH``) in the windows of ``step`` in ``window``, by scope text.

    Windows begin at multiples of ``step`` since 1970; ``window`` is cut to whole ones. Counts are 0 in windows without rows from
    a scope's first one on; other metrics are not known there. Refused requests are in none. ``inside``: of work on that
    deployment alone.
    """
    start, end = floor_time(window.start, step), floor_time(window.end, step)
    if start >= end:
        return {}
    cut = Window(start, end)
    if METRICS[metric].source == "length":
        return _over_p90(connection, scope, cut)
    found = _sums(connection, metric, scope, inside, cut, step, prices)
    return {name: _filled(name_points, metric, cut, step) for name, name_points in found.items()}


def _keys(scope: str) -> tuple[tuple[str, ...], str, dict[str, Any]]:
    """Group columns, condition and its values."""
    if scope == "each:deployment":
        return DEPLOYMENT_COLUMNS, "", {}
    if scope in ("each:org", "each:team"):
        return ("org",) if scope == "each:org" else ("org", "team"), " AND org <> ''", {}
    parsed = parse_scope(scope)
    columns = (DEPLOYMENT_COLUMNS if parsed.kind == "deployment" else TENANT_COLUMNS)[: len(parsed.parts)]
    values = {f"s_{column}": part for column, part in zip(columns, parsed.parts, strict=True)}
    return columns, "".join(f" AND {column} = :s_{column}" for column in columns), values


def _sums(
    connection: Connection, metric: str, scope: str, inside: str, window: Window, step: timedelta, prices: Sequence[UnitPrice]
) -> dict[str, tuple[list[Point], str]]:
    source, priced = METRICS[metric].source, METRICS[metric].priced
    columns, where, values = _keys(scope)
    where += " AND status <> 'refused'" if source == "usage" else ""
    if inside:
        _, within, named_values = _keys(inside)
        where, values = where + within, {**values, **named_values}
    named = tuple(dict.fromkeys((*columns, *(DEPLOYMENT_COLUMNS if priced else ()))))
    coarsest: Level = "hour" if step >= timedelta(hours=1) else "minute"

    def select(level: Level) -> str:
        return f"date_bin(:step, {level}, 'epoch'::timestamptz) AS at, {', '.join(named)}, {_COLUMNS[source]}"

    values |= {"step": step, "minutes": step / timedelta(minutes=1)}
    family = ENGINE if source == "engine" else USAGE
    extra = (
        ("status", "team", *(name.removeprefix("s_") for name in values if name.startswith("s_"))) if source == "usage" else ()
    )
    rows = rollup_rows(family, window, coarsest, (*named, *extra), select, where, values)
    over, under, factor = SUMS[metric]
    join, cost, currency = "", "", "''"
    if priced:
        values |= _price_arrays(prices)
        join = f" LEFT JOIN {_PRICES} USING (cluster, namespace, model_id)"
        cost, currency = f", {_COST[source]} AS cost, price.currency", "max(currency)"
    keys = ", ".join(columns)
    sql = (
        f"SELECT at, {keys}, ({over})::float8, ({under})::float8, ({_TOKENS_OF[source]})::bigint, {currency} "
        f"FROM (SELECT part.*{cost} FROM ({rows}) AS part{join}) AS row GROUP BY at, {keys} ORDER BY {keys}, at"
    )
    kind = "deployment" if columns[0] == "cluster" else "tenant"
    found: dict[str, tuple[list[Point], str]] = {}
    for at, *parts, top, bottom, tokens, unit in connection.execute(text(sql), values):
        value = None if top is None or not bottom else top / bottom * factor
        name = f"{kind}:{'/'.join(parts).rstrip('/')}"
        points, known = found.get(name, ([], ""))
        points.append(Point(at, value, tokens))
        found[name] = (points, unit or known)
    return found


def _price_arrays(prices: Sequence[UnitPrice]) -> dict[str, list[Any]]:
    def per(name: str) -> list[float]:
        return [float(p.units.unit * getattr(p.units.weights, name)) for p in prices]

    return {
        "p_cluster": [p.deployment.cluster for p in prices], "p_namespace": [p.deployment.namespace for p in prices],
        "p_model": [p.deployment.model_id for p in prices], "p_currency": [p.units.currency for p in prices],
        "p_input": per("input"), "p_cached": per("input_cached"), "p_output": per("output"),
        "p_kv": [kv / 2 for kv in per("kv")], "p_busy": [p.busy_us_cost for p in prices],
    }  # fmt: skip


def _filled(found: tuple[list[Point], str], metric: str, window: Window, step: timedelta) -> ScopePoints:
    points, currency = found
    if not METRICS[metric].silent_is_zero or not points:
        return ScopePoints(points, currency)
    have = {point.at: point for point in points}
    count = (window.end - points[0].at) // step
    starts = (points[0].at + n * step for n in range(count))
    return ScopePoints([have.get(at) or Point(at, 0.0, 0) for at in starts], currency)


_LENGTHS = """
    SELECT hour, cluster, namespace, model_id, bucket, sum(requests)::bigint FROM usage_length_hour
    WHERE kind = 'input' AND hour >= :start AND hour < :end{where} GROUP BY 1, 2, 3, 4, 5
"""


def _over_p90(connection: Connection, scope: str, window: Window) -> dict[str, ScopePoints]:
    """Shares by the hour, each against the P90 of the seven days before ``window`` ends its first hour's week."""
    _, where, values = _keys(scope)
    values |= {"start": window.start - P90_BEFORE, "end": window.end}
    hours: dict[str, dict[datetime, dict[int, int]]] = {}
    for hour, *place, bucket, requests in connection.execute(text(_LENGTHS.format(where=where)), values):
        hours.setdefault(f"deployment:{'/'.join(place)}", {}).setdefault(hour, {})[bucket] = requests
    return {name: ScopePoints(_shares(found, window)) for name, found in hours.items()}


def _shares(hours: Mapping[datetime, Mapping[int, int]], window: Window) -> list[Point]:
    points: list[Point] = []
    for hour in sorted(hour for hour in hours if hour >= window.start):
        before: dict[int, int] = {}
        for earlier, lengths in hours.items():
            if hour - P90_BEFORE <= earlier < hour:
                for bucket, requests in lengths.items():
                    before[bucket] = before.get(bucket, 0) + requests
        limit, whole = p90_bucket(before), sum(hours[hour].values())
        over = sum(n for bucket, n in hours[hour].items() if limit is not None and bucket > limit)
        points.append(Point(hour, None if limit is None else over / whole))
    return points
