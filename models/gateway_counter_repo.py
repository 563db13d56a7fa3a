"""Gateways' own token counters: what a batch of points adds, and the sums that are compared with the usage records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, func, select, text
from sqlalchemy.dialects.postgresql import insert

from core.gateway_counter import SeriesState
from core.windows import Window
from models.tables_counters import GatewayCounterRow, GatewayCounterSeriesRow

KEYS = ("minute", "source", "metric", "cluster", "namespace", "model_id", "token_type")
_LOCK = 7_360_711


@dataclass(frozen=True, slots=True)
class CounterSum:
    """What one source counted for one deployment in a window. ``input_tokens`` and ``output_tokens`` are wholes; the others are
    parts of them and are never added to them. None: not counted by that source."""

    source: str
    metric: str
    cluster: str
    namespace: str
    model_id: str
    input_tokens: int | None
    output_tokens: int | None
    cached_input_tokens: int | None
    cache_creation_input_tokens: int | None
    reasoning_tokens: int | None


def lock_series(connection: Connection, names: Collection[str]) -> dict[str, SeriesState]:
    """The last points of those series; others wait until this transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    row = GatewayCounterSeriesRow
    query = select(row.series, row.start_ns, row.at_ns, row.value).where(row.series.in_(names))
    return {found.series: SeriesState(found.start_ns, found.at_ns, found.value) for found in connection.execute(query)}


def save_series(connection: Connection, states: Mapping[str, SeriesState], now: datetime) -> None:
    rows = [
        {"series": name, "start_ns": state.start_ns, "at_ns": state.at_ns, "value": state.value, "updated_at": now}
        for name, state in sorted(states.items())
    ]
    if rows:
        statement = insert(GatewayCounterSeriesRow)
        changed = {name: statement.excluded[name] for name in ("start_ns", "at_ns", "value", "updated_at")}
        connection.execute(statement.on_conflict_do_update(index_elements=["series"], set_=changed), rows)


def add_tokens(connection: Connection, sums: Mapping[tuple[Any, ...], int]) -> None:
    """Add tokens by ``KEYS``."""
    rows = [dict(zip(KEYS, key, strict=True), tokens=tokens) for key, tokens in sorted(sums.items())]
    if rows:
        statement = insert(GatewayCounterRow)
        more = {"tokens": _table().c.tokens + statement.excluded.tokens}
        connection.execute(statement.on_conflict_do_update(index_elements=list(KEYS), set_=more), rows)


def counter_sums(connection: Connection, window: Window, metrics: Sequence[str]) -> list[CounterSum]:
    """Sums by source and deployment. Of several metrics that carry the same tokens the first of ``metrics`` is taken, per
    (source, deployment, token type)."""
    row = GatewayCounterRow
    query = (
        select(row.source, row.metric, row.cluster, row.namespace, row.model_id, row.token_type, func.sum(row.tokens))
        .where(row.minute >= window.start, row.minute < window.end)
        .group_by(row.source, row.metric, row.cluster, row.namespace, row.model_id, row.token_type)
    )
    return _believed(connection.execute(query).all(), metrics)


def _believed(rows: Sequence[Any], metrics: Sequence[str]) -> list[CounterSum]:
    order = {name: place for place, name in enumerate(metrics)}
    best: dict[tuple[str, ...], dict[str, tuple[int, str, int]]] = {}
    for source, metric, cluster, namespace, model_id, token_type, tokens in rows:
        found = best.setdefault((source, cluster, namespace, model_id), {})
        candidate = (order.get(metric, len(order)), metric, int(tokens))
        if token_type not in found or candidate < found[token_type]:
            found[token_type] = candidate
    return [_sum(key, found) for key, found in sorted(best.items())]


def _sum(key: tuple[str, ...], found: Mapping[str, tuple[int, str, int]]) -> CounterSum:
    source, *deployment = key
    names = ("input", "output", "cached_input", "cache_creation_input", "reasoning")
    counts = [found[name][2] if name in found else None for name in names]
    return CounterSum(source, min(found.values())[1], *deployment, *counts)  # type: ignore[arg-type]


def _table() -> Table:
    table = GatewayCounterRow.__table__
    assert isinstance(table, Table)
    return table
