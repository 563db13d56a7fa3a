"""What a FOCUS export reads of the ledger: capacity of a deployment by hour or day, and the parts it was allocated to.

Every read of one export must see one state of the database: the caller's connection reads a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal

from sqlalchemy import Connection, text

from core.bought import CLUSTER
from core.focus_rows import Origin, Part
from core.money import ZERO
from core.usage import Deployment
from core.windows import Window
from models.ledger_repo import ledger_rows, window_head

Grain = Literal["hour", "day"]
GRAINS: tuple[Grain, ...] = ("hour", "day")
_LENGTH: Mapping[Grain, timedelta] = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_PLACE = "cluster, namespace, model_id"
_LINE_KEYS = (
    "cluster", "namespace", "model_id", "org", "team", "project", "user", "key_id", "service_tier", "kind", "token_kind",
)  # fmt: skip
_BASIS = re.compile(r"\((billed|effective|list|contracted)\)")
_SEEN = "FILTER (WHERE x.engine_prompt_tokens IS NOT NULL)"
# Windows whose start lies in [start, end); head is the newest version, or the one that stood at a time.
_WINDOWS = """
    {head}, w AS (
        SELECT date_trunc('{grain}', x.window_start, 'UTC') AS start, x.* FROM ledger_window x
        JOIN head h USING (cluster, namespace, model_id, window_start, version)
        WHERE x.window_start >= :start AND x.window_start < :end AND x.capacity_cost IS NOT NULL
    )
"""
_ORIGINS = """
    , held AS (
        SELECT start, {place}, w.currency, array_agg(DISTINCT s.gpu_type ORDER BY s.gpu_type) AS gpu_types,
            CAST(sum(s.gpu_count * 1000000 * extract(epoch FROM
                least(coalesce(s.in_service_to, 'infinity'), window_start + interval '15 minutes')
                - greatest(s.in_service_from, window_start))) AS bigint) AS gpu_us
        FROM w JOIN node_service s USING ({place})
        WHERE s.in_service_from < window_start + interval '15 minutes'
            AND (s.in_service_to IS NULL OR s.in_service_to > window_start)
        GROUP BY 1, 2, 3, 4, 5
    ), o AS (
        SELECT start, {place}, x.currency, sum(capacity_cost) AS cost, sum(used_cost) AS used,
            count(*) FILTER (WHERE used_cost IS NULL) AS unused_unknown,
            string_agg(DISTINCT nullif(price_source, ''), '; ' ORDER BY nullif(price_source, '')) AS price_source,
            string_agg(DISTINCT nullif(utilisation_source, ''), '; ' ORDER BY nullif(utilisation_source, ''))
                AS utilisation_source,
            string_agg(DISTINCT nullif(weight_source, ''), '; ' ORDER BY nullif(weight_source, '')) AS weight_source,
            CASE WHEN bool_or(state = 'provisional') THEN 'provisional' WHEN bool_and(state = 'final') THEN 'final'
                ELSE min(state) FILTER (WHERE state <> 'final') END AS state,
            sum(engine_prompt_tokens) {seen} AS engine_in, sum(engine_generation_tokens) {seen} AS engine_out,
            sum(gateway_input_tokens) {seen} AS gateway_in, sum(gateway_output_tokens) {seen} AS gateway_out
        FROM w x GROUP BY 1, 2, 3, 4, 5
    )
    SELECT o.*, held.gpu_types, held.gpu_us FROM o LEFT JOIN held USING (start, {place}, currency)
"""
_TOTALS = """
    SELECT x.currency, sum(x.capacity_cost) AS whole,
        coalesce(sum(x.capacity_cost) FILTER (WHERE x.cluster <> :bought), 0) AS of_gpus
    FROM w x GROUP BY 1 ORDER BY 1
"""
_UNPRICED = """
    {head} SELECT cluster || '/' || namespace || '/' || model_id AS deployment, count(*) AS windows,
        min(x.detail ->> 'reason') AS reason
    FROM ledger_window x JOIN head h USING (cluster, namespace, model_id, window_start, version)
    WHERE x.window_start >= :start AND x.window_start < :end AND x.capacity_cost IS NULL GROUP BY 1 ORDER BY 1
"""
_FINAL = """
    {head} SELECT coalesce(bool_and(x.state = 'final' AND x.capacity_cost IS NOT NULL), false)
    FROM ledger_window x JOIN head h USING (cluster, namespace, model_id, window_start, version)
    WHERE x.window_start >= :start AND x.window_start < :end
"""


@dataclass(frozen=True, slots=True)
class Allocated:
    """An origin and its parts, of a tenant or all of them."""

    origin: Origin
    parts: tuple[Part, ...]


def allocations(
    connection: Connection,
    window: Window,
    grain: Grain,
    *,
    as_of: datetime | None = None,
    filters: Mapping[str, str] | None = None,
) -> Iterator[Allocated]:
    """Origins of closed, priced quarter hours that start in ``window``, by UTC hour or day, in order; those without a part that
    passes ``filters`` (keys of a line) are left out. Σ parts.cost == origin.cost where nothing is filtered."""
    origins = {_origin_key(origin, grain): origin for origin in _origins(connection, window, grain, as_of)}
    rows = ledger_rows(connection, (grain, *_LINE_KEYS), window, as_of=as_of, filters=filters)
    named = sorted(rows, key=lambda row: _row_key(row, grain))
    for key, group in groupby(named, key=lambda row: _row_key(row, grain)):
        yield Allocated(origins[key], tuple(_part(row) for row in group))


@dataclass(frozen=True, slots=True)
class CapacityTotal:
    """Capacity cost of closed, priced quarter hours; ``of_gpus`` leaves tokens of vendors' APIs out."""

    whole: Decimal
    of_gpus: Decimal


def capacity_totals(connection: Connection, window: Window, *, as_of: datetime | None = None) -> dict[str, CapacityTotal]:
    """By currency, of the quarter hours that start in ``window``."""
    query = text(_WINDOWS.format(head=window_head(as_of), grain="day") + _TOTALS)
    found = connection.execute(query, {**_bounds(window, as_of), "bought": CLUSTER})
    return {row.currency: CapacityTotal(row.whole, row.of_gpus) for row in found}


def line_totals(
    connection: Connection, window: Window, *, as_of: datetime | None = None, filters: Mapping[str, str] | None = None
) -> dict[str, tuple[Decimal, Decimal]]:
    """Currency -> (cost, allocated) of the lines, as ``ledger show`` sums them."""
    rows = ledger_rows(connection, (), window, as_of=as_of, filters=filters)
    return {row["currency"]: (row["cost"] or ZERO, row["allocated"] or ZERO) for row in rows}


def unpriced_windows(connection: Connection, window: Window, *, as_of: datetime | None = None) -> list[dict[str, Any]]:
    """Closed quarter hours without a price, by deployment: {deployment, windows, reason}."""
    query = text(_UNPRICED.format(head=window_head(as_of)))
    return [dict(row._mapping) for row in connection.execute(query, _bounds(window, as_of))]


def is_final(connection: Connection, period: Window, *, as_of: datetime | None = None) -> bool:
    """Whether every closed quarter hour that starts in ``period`` is priced and final; False where none is closed."""
    query = text(_FINAL.format(head=window_head(as_of)))
    return bool(connection.execute(query, _bounds(period, as_of)).scalar_one())


def _origins(connection: Connection, window: Window, grain: Grain, as_of: datetime | None) -> Iterator[Origin]:
    query = (_WINDOWS + _ORIGINS).format(head=window_head(as_of), grain=grain, place=_PLACE, seen=_SEEN)
    for row in connection.execute(text(query), _bounds(window, as_of)):
        start = row.start
        sources = row.price_source or ""
        yield Origin(
            window=Window(start, start + _LENGTH[grain]),
            deployment=Deployment(row.cluster, row.namespace, row.model_id),
            currency=row.currency,
            cost=row.cost,
            used=None if row.unused_unknown else row.used,
            gpu_us=row.gpu_us or 0,
            gpu_types=tuple(row.gpu_types or ()),
            charge_basis="; ".join(sorted(set(_BASIS.findall(sources)))),
            price_source=sources,
            utilisation_source=row.utilisation_source or "",
            weight_source=row.weight_source or "",
            state=row.state,
            engine_in=int(row.engine_in or 0),
            engine_out=int(row.engine_out or 0),
            gateway_in=int(row.gateway_in or 0),
            gateway_out=int(row.gateway_out or 0),
        )


_Key = tuple[datetime, str, str, str, str]


def _origin_key(origin: Origin, grain: Grain) -> _Key:
    place = origin.deployment
    return origin.window.start, place.cluster, place.namespace, place.model_id, origin.currency


def _row_key(row: Mapping[str, Any], grain: Grain) -> _Key:
    return row[grain], row["cluster"], row["namespace"], row["model_id"], row["currency"]


def _part(row: Mapping[str, Any]) -> Part:
    whose = {name: row[name] for name in ("org", "team", "project", "user", "key_id", "service_tier")}
    tokens, requests = int(row["tokens"]), int(row["requests"])
    return Part(row["kind"], row["token_kind"], tokens, requests, row["cost"], row["allocated"], **whose)


def _bounds(window: Window, as_of: datetime | None) -> dict[str, datetime]:
    return {"start": window.start, "end": window.end, **({} if as_of is None else {"as_of": as_of})}
