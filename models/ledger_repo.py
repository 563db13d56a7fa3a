"""Read the ledger: windows, lines and unit costs, newest or as of a time. Sums of quarter hours; nothing is re-priced here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, TextClause, text

from core.errors import BadInput
from core.unit_cost import COST_BASES, TOKEN_KINDS, CostBasis, CostSum, unit_cost
from core.windows import Window, zone
from models.ledger_sums import newest_lines
from models.window_sums import TOKEN_SUMS, WINDOW_COLUMNS, newest_windows

WINDOW_KEYS: dict[str, str] = {
    "quarter_hour": "x.window_start",
    "hour": "date_trunc('hour', x.window_start, 'UTC')",
    "day": "date_trunc('day', x.window_start, :zone)",
    "deployment": "x.cluster || '/' || x.namespace || '/' || x.model_id",
    "cluster": "x.cluster",
    "namespace": "x.namespace",
    "model_id": "x.model_id",
}
"""Grouping keys that a window has: ``day`` is the instant at which the reporting zone's day begins."""

LINE_KEYS: dict[str, str] = {
    **WINDOW_KEYS,
    "org": "x.org",
    "team": "x.team",
    "project": "x.project",
    "user": "x.user_id",
    "key_id": "x.key_id",
    "service_tier": "x.service_tier",
    "workload_class": "x.workload_class",
    "kind": "x.kind",
    "token_kind": "x.token_kind",
}
"""Grouping keys of a line."""

_NEWEST = "SELECT * FROM ledger_head WHERE window_start >= :start AND window_start < :end"
_AS_OF = """
    SELECT DISTINCT ON (cluster, namespace, model_id, window_start) cluster, namespace, model_id, window_start, version
    FROM ledger_window WHERE window_start >= :start AND window_start < :end AND closed_at <= :as_of
    ORDER BY cluster, namespace, model_id, window_start, version DESC
"""
_JOIN = "JOIN head h USING (cluster, namespace, model_id, window_start, version)"


def ledger_windows(
    connection: Connection, window: Window, *, as_of: datetime | None = None, filters: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """One row per closed quarter hour and deployment that starts in ``window``: its money, sources, state, version and detail."""
    where, values = _filters(filters, WINDOW_KEYS)
    columns = "x.*, x.cluster || '/' || x.namespace || '/' || x.model_id AS deployment"
    query = text(
        f"{window_head(as_of)} SELECT {columns} FROM ledger_window x {_JOIN} {where} ORDER BY x.window_start, deployment"
    )
    rows = connection.execute(query, {**_values(window, as_of), **values})
    return [_plain(row._mapping) for row in rows]


def ledger_rows(
    connection: Connection,
    by: Sequence[str],
    window: Window,
    *,
    as_of: datetime | None = None,
    filters: Mapping[str, str] | None = None,
    zone_name: str = "UTC",
) -> list[dict[str, Any]]:
    """Ledger lines summed by the keys asked for (of ``LINE_KEYS``) and currency: tokens, requests, cost, allocated.

    ``cost`` and ``allocated`` each add up to the capacity cost of the windows, exactly. Raises BadInput for an unknown key.
    """
    keys = _keys(by, LINE_KEYS)
    where, values = _filters(filters, LINE_KEYS)
    bound = {**_values(window, as_of, zone_name), **values}
    source = _lines(as_of, keys, filters or {}, window, zone_name, bound)
    sums = "sum(x.tokens) AS tokens, sum(x.requests) AS requests, sum(x.cost) AS cost, sum(x.allocated) AS allocated"
    return [_plain(row._mapping) for row in connection.execute(_grouped(keys, where, sums, source), bound)]


_LINES_AS_OF = (
    f"(WITH head AS ({_AS_OF}) SELECT x.*, w.currency FROM ledger_line x {_JOIN} "
    "JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version) "
    "WHERE x.window_start >= :start AND x.window_start < :end)"
)

_WINDOWS_AS_OF = (
    f"(WITH head AS ({_AS_OF}) SELECT {WINDOW_COLUMNS} FROM ledger_window x {_JOIN} "
    "WHERE x.window_start >= :start AND x.window_start < :end)"
)


def _lines(
    as_of: datetime | None, keys: Mapping[str, str], filters: Mapping[str, str], window: Window, zone_name: str,
    values: dict[str, Any],
) -> str:  # fmt: skip
    """The lines of ``window``: as they stood, or the newest by the coarsest sums the keys allow (bounds go into ``values``)."""
    if as_of is not None:
        return _LINES_AS_OF
    return newest_lines(window, {*keys, *filters}, zone_name, values)


def unit_cost_rows(
    connection: Connection,
    by: Sequence[str],
    window: Window,
    basis: CostBasis,
    *,
    as_of: datetime | None = None,
    filters: Mapping[str, str] | None = None,
    zone_name: str = "UTC",
) -> list[dict[str, Any]]:
    """Unit costs by the keys asked for, per currency, from the closed quarter hours that start in ``window``.

    Row: the keys, ``currency``, ``basis``, ``requests``, ``tokens`` {input, input_cached, output}, ``cost`` (all of the group's
    lines on this basis; the usage basis leaves idle and starting out), ``wasted_cost``, ``unattributed_cost``, ``idle_cost``,
    ``starting_cost`` (as they stand in the ledger, before anybody bears them), ``input_per_mtok``, ``input_cached_per_mtok``,
    ``output_per_mtok``, ``blended_per_mtok``, ``per_request`` (Decimal or None), ``reasons`` {field: why None} and
    ``meta``. ``cost`` = Σ price of a kind x its tokens + ``cost_without_tokens``: quarter hours without work, in blended and
    per request alone.
    Raises BadInput for an unknown key or basis.
    """
    if basis not in COST_BASES:
        raise BadInput(f"must be one of {', '.join(COST_BASES)}", field="basis", value=basis)
    keys = _keys(by, {k: v for k, v in LINE_KEYS.items() if k not in ("kind", "token_kind")})
    where, values = _filters(filters, LINE_KEYS)
    bound = {**_values(window, as_of, zone_name), **values}
    query = _unit_query(keys, where, basis, _lines(as_of, keys, filters or {}, window, zone_name, bound))
    found = [dict(row) for row in connection.execute(query, bound).mappings()]
    rows = {_group(row, keys): row for row in found}
    about = _about(connection, keys, window, as_of, zone_name, filters)
    return [_unit_row(row, keys, basis, about) for row in rows.values()] + _unpriced_rows(keys, basis, about, rows)


def _unit_query(keys: Mapping[str, str], where: str, basis: CostBasis, source: str) -> TextClause:
    column = "allocated" if basis == "allocation" else "cost"
    work = "TRUE" if basis == "allocation" else "x.kind NOT IN ('idle', 'starting')"
    parts = [f"sum(x.{column}) FILTER (WHERE {work} AND x.token_kind = '{k}') AS cost_{k or 'none'}" for k in (*TOKEN_KINDS, "")]
    parts += [f"sum(x.tokens) FILTER (WHERE x.token_kind = '{k}') AS tokens_{k}" for k in TOKEN_KINDS]
    parts += [f"sum(x.cost) FILTER (WHERE x.kind = '{k}') AS {k}_cost" for k in ("wasted", "unattributed", "idle", "starting")]
    return _grouped(keys, where, ", ".join(["sum(x.requests) AS requests", *parts]), source)


def _unit_row(
    row: Mapping[str, Any], keys: Mapping[str, str], basis: CostBasis, about: Mapping[tuple[Any, ...], Mapping[str, Any]]
) -> dict[str, Any]:
    meta = about.get(_window_group(row, keys), {})
    cost = {kind: row[f"cost_{kind or 'none'}"] or Decimal(0) for kind in (*TOKEN_KINDS, "")}
    tokens = {kind: int(row[f"tokens_{kind}"] or 0) for kind in TOKEN_KINDS}
    sums = CostSum(cost, tokens, int(row["requests"] or 0), int(meta.get("unpriced_tokens") or 0))
    unit = unit_cost(sums)
    whole = sum(cost.values(), Decimal(0))
    shown = {name: row[name] or Decimal(0) for name in ("wasted_cost", "unattributed_cost", "idle_cost", "starting_cost")}
    return {
        **{name: row[name] for name in keys},
        "currency": row["currency"],
        "basis": basis,
        "requests": sums.requests,
        "tokens": tokens,
        "cost": whole,
        "cost_without_tokens": cost[""],
        **shown,
        **{name: getattr(unit, name) for name in UNIT_FIELDS},
        "reasons": dict(unit.reasons),
        "meta": _meta(meta, basis),
    }


UNIT_FIELDS = ("input_per_mtok", "input_cached_per_mtok", "output_per_mtok", "blended_per_mtok", "per_request")


def _unpriced_rows(
    keys: Mapping[str, str],
    basis: CostBasis,
    about: Mapping[tuple[Any, ...], Mapping[str, Any]],
    rows: Mapping[tuple[Any, ...], Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Groups of windows that have tokens and no price at all: shown with None and the reason, not left out."""
    priced = {_window_group(row, keys) for row in rows.values()}
    found: list[dict[str, Any]] = []
    for group, meta in about.items():
        if group in priced or not meta["unpriced_windows"]:
            continue
        reason = f"{meta['unpriced_windows']} quarter hours without a price: {meta['reason']}"
        found.append({
            **{name: meta.get(name, "") for name in keys},
            "currency": meta["currency"], "basis": basis, "requests": 0, "tokens": dict.fromkeys(TOKEN_KINDS, 0), "cost": None,
            "cost_without_tokens": None,
            "wasted_cost": None, "unattributed_cost": None, "idle_cost": None, "starting_cost": None,
            **dict.fromkeys(UNIT_FIELDS), "reasons": dict.fromkeys((*UNIT_FIELDS, "cost"), reason), "meta": _meta(meta, basis),
        })  # fmt: skip
    return found


def _about(
    connection: Connection, keys: Mapping[str, str], window: Window, as_of: datetime | None, zone_name: str,
    filters: Mapping[str, str] | None,
) -> dict[tuple[Any, ...], Mapping[str, Any]]:  # fmt: skip
    """Sources, state, freshness, coverage and unpriced work of the windows, by those keys that a window has and currency."""
    own = {name: column for name, column in keys.items() if name in WINDOW_KEYS}
    where, values = _filters({k: v for k, v in (filters or {}).items() if k in WINDOW_KEYS}, WINDOW_KEYS)
    bound = {**_values(window, as_of, zone_name), **values}
    source = newest_windows(window, own, zone_name, bound) if as_of is None else _WINDOWS_AS_OF
    names = "".join(f"{column} AS {name}, " for name, column in own.items())
    sums = ", ".join(f"sum(x.{name})::bigint AS {name}" for name in (*TOKEN_SUMS, "unpriced_windows", "unpriced_tokens"))
    inner = f"""(SELECT {names}x.currency, x.price_source, x.utilisation_source, x.weight_source, x.state, max(x.last) AS last,
        min(x.reason) AS reason, {sums}
        FROM {source} x {where} GROUP BY {", ".join(str(n + 1) for n in range(len(own) + 5))})"""
    columns = f"""
        string_agg(DISTINCT nullif(x.price_source, ''), '; ') AS price_source,
        string_agg(DISTINCT nullif(x.utilisation_source, ''), '; ') AS utilisation_source,
        string_agg(DISTINCT x.weight_source, '; ') AS weight_source,
        CASE WHEN bool_and(x.state = 'final') THEN 'final' WHEN bool_and(x.state IN ('final', 'trued_up')) THEN 'trued_up'
             ELSE 'provisional' END AS state,
        max(x.last) + interval '15 minutes' AS freshness, min(x.reason) AS reason, {sums}
    """
    query = _grouped({name: f"x.{name}" for name in own}, "", columns, inner)
    return {_window_group(row, keys): row for row in map(dict, connection.execute(query, bound).mappings())}


def _meta(about: Mapping[str, Any], basis: CostBasis) -> dict[str, Any]:
    names = ("price_source", "utilisation_source", "weight_source", "state", "freshness")
    unpriced = {"unpriced_tokens": int(about.get("unpriced_tokens") or 0), "unpriced_reason": about.get("reason") or ""}
    return {"basis": basis, **{name: about.get(name) for name in names}, "coverage": _coverage(about), **unpriced}


def _coverage(about: Mapping[str, Any]) -> Decimal | None:
    """Σ min(engine, gateway) / Σ engine over prompt and generated tokens, to six decimals: as ``coverage_rows`` shows it."""
    engine_in, engine_out, gateway_in, gateway_out = (int(about.get(name) or 0) for name in TOKEN_SUMS)
    if engine_in + engine_out == 0:
        return None
    explained = min(engine_in, gateway_in) + min(engine_out, gateway_out)
    return (Decimal(explained) / (engine_in + engine_out)).quantize(Decimal("1e-6"))


def _group(row: Mapping[str, Any], keys: Mapping[str, str]) -> tuple[Any, ...]:
    return (*(row[name] for name in keys), row["currency"])


def _window_group(row: Mapping[str, Any], keys: Mapping[str, str]) -> tuple[Any, ...]:
    return (*(row[name] for name in keys if name in WINDOW_KEYS), row["currency"])


def window_head(as_of: datetime | None) -> str:
    """SQL ``WITH head AS (…)``: the newest version of each window that starts in [:start, :end), or what stood at :as_of."""
    return f"WITH head AS ({_NEWEST if as_of is None else _AS_OF})"


def _grouped(keys: Mapping[str, str], where: str, columns: str, source: str) -> TextClause:
    names = "".join(f"{column} AS {name}, " for name, column in keys.items())
    group = ", ".join(str(n + 1) for n in range(len(keys) + 1))
    return text(f"SELECT {names}x.currency AS currency, {columns} FROM {source} x {where} GROUP BY {group} ORDER BY {group}")


def line_columns(by: Sequence[str]) -> dict[str, str]:
    """Expressions over a line named x by key. Raises BadInput for an unknown key."""
    return _keys(by, LINE_KEYS)


def line_filters(filters: Mapping[str, str] | None) -> tuple[str, dict[str, str]]:
    """A WHERE over a line named x that starts in [:start, :end), and the values of ``filters``. Raises BadInput."""
    return _filters(filters, LINE_KEYS)


def _keys(by: Sequence[str], allowed: Mapping[str, str]) -> dict[str, str]:
    for name in by:
        if name not in allowed:
            raise BadInput("unknown key", field="by", value=name, hint=f"use {', '.join(allowed)}")
    return {name: allowed[name] for name in dict.fromkeys(by)}


def _filters(filters: Mapping[str, str] | None, allowed: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    given = filters or {}
    columns = _keys(tuple(given), allowed)
    terms = ["x.window_start >= :start", "x.window_start < :end"]
    terms += [f"CAST({column} AS varchar) = :filter_{name}" for name, column in columns.items()]
    return "WHERE " + " AND ".join(terms), {f"filter_{name}": str(value) for name, value in given.items()}


def _values(window: Window, as_of: datetime | None, zone_name: str = "UTC") -> dict[str, Any]:
    values: dict[str, Any] = {"start": window.start, "end": window.end, "zone": zone(zone_name).key}
    return values if as_of is None else {**values, "as_of": as_of}


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Counts as int (PostgreSQL sums BIGINT into NUMERIC), money as it is."""
    counts = ("tokens", "requests")
    return {str(name): int(value) if name in counts and value is not None else value for name, value in row.items()}
