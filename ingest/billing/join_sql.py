"""A delivery's machine charges by hour and owner, in DuckDB: ``core.hour_shares`` and ``core.charge_join``'s buckets as SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from core.charge_join import ADJUSTING, JOINED
from ingest.billing.sql import string, strings

COSTS = ("billed", "effective", "list", "contracted")
QUANTUM_DIGITS = 12
RESOURCE = ("provider", "resource_id", "tags")
"""What names a resource: ``tags`` is '' where the lines name a resource id."""

_MACROS = (
    # Whole quanta of 1e-12 of an amount's size, from its text: no rounding, whatever its scale.
    "CREATE OR REPLACE MACRO quanta_of(x) AS CAST(split_part(CAST(abs(x) AS VARCHAR), '.', 1) || "
    "rpad(left(split_part(CAST(abs(x) AS VARCHAR), '.', 2), 12), 12, '0') AS HUGEINT)",
    "CREATE OR REPLACE MACRO amount_of(q) AS CAST(q AS DECIMAL(26, 0)) * CAST('0.000000000001' AS DECIMAL(12, 12))",
)


@dataclass(frozen=True, slots=True)
class Scales:
    """Decimals of the money and of the hours of the charges; parts of hours need at least 12."""

    money: int
    hours: int

    def of(self, name: str) -> int:
        return max(self.hours if name == "hours" else self.money, QUANTUM_DIGITS)


def prepare(session: Any, charges: Path, period: date) -> Scales:
    """View ``join_source``: charges that may belong to a machine, with their interval [s, e). One within an hour, or without
    an end, is its (first) hour's, ``e`` = ``s`` + 1 h; ``s`` NULL: the line does not say when. ``tags`` as RESOURCE says."""
    for macro in _MACROS:
        session.execute(macro)
    source = f"read_parquet({string(str(charges))})"
    hour = "date_trunc('hour', charge_start)"
    short = f"(charge_end IS NULL OR charge_end <= {hour} + INTERVAL 1 HOUR)"
    session.execute(
        f"""CREATE OR REPLACE TEMP VIEW join_source AS
        SELECT * REPLACE (CASE WHEN resource_id = '' THEN tags ELSE '' END AS tags), tags AS all_tags,
          CASE WHEN {short} THEN {hour} ELSE charge_start END AS s,
          CASE WHEN {short} THEN {hour} + INTERVAL 1 HOUR ELSE charge_end END AS e
        FROM ({_source(source, period)})"""
    )
    types = dict(session.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {source})").fetchall())
    return Scales(_scale(types["billed"]), _scale(types["hours"]))


def _source(source: str, period: date) -> str:
    """Charges of machines, and adjustments of what is a machine by its instance type or by another line of the same resource."""
    machine = f"(bucket IN {strings(JOINED)} AND (bucket <> 'other_compute' OR hours IS NOT NULL))"
    adjusting = f"(bucket IN {strings(ADJUSTING)} AND resource_id <> '')"
    return f"SELECT * FROM {source} WHERE delivery_period = DATE {string(period.isoformat())} AND ({machine} OR {adjusting})"


def _known_sum(name: str) -> str:
    """A sum of which a part is unknown is unknown."""
    return f"CASE WHEN count({name}) = count(*) THEN sum({name}) END AS {name}"


def _scale(type_: str) -> int:
    found = re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", type_)
    return int(found[1]) if found else 0


def resources(session: Any) -> list[tuple[Any, ...]]:
    """(provider, resource id, tags, instance type, first, last, is a machine) of every resource; times None where unknown."""
    rows: list[tuple[Any, ...]] = session.execute(
        f"SELECT provider, resource_id, tags, coalesce(max(instance_type), ''), min(s), max(e), "
        f"bool_or(bucket IN {strings(JOINED)} OR instance_type <> '') "
        "FROM join_source GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    return rows


def tags_of_machines(session: Any) -> list[tuple[str, str, str]]:
    """(provider, resource id, tags as JSON text) of lines of machines; adjustments count where they name an instance type."""
    rows: list[tuple[str, str, str]] = session.execute(
        f"SELECT DISTINCT provider, resource_id, all_tags FROM join_source WHERE all_tags <> '{{}}' "
        f"AND (bucket IN {strings(JOINED)} OR instance_type <> '') ORDER BY ALL"
    ).fetchall()
    return rows


def types(session: Any) -> list[tuple[str, str]]:
    """(provider, instance type) of all lines."""
    rows: list[tuple[str, str]] = session.execute("SELECT DISTINCT provider, instance_type FROM join_source").fetchall()
    return rows


def _gather(session: Any) -> None:
    """Table ``machine_charges``: one row per resource, bucket and interval where somebody may own it, else one per resource and
    bucket over its whole time (a month of hours of nobody's is one row)."""
    session.execute(
        f"""CREATE OR REPLACE TEMP TABLE machine_charges AS
        SELECT provider, resource_id, tags, instance_type, bucket, currency, owned, min(s) AS s, max(e) AS e,
          any_value(account) AS account, any_value(region) AS region,
          sum(billed) AS billed, sum(effective) AS effective, {_known_sum("list")}, {_known_sum("contracted")},
          coalesce(sum(hours), 0) AS hours
        FROM (SELECT c.*, o.provider IS NOT NULL AND s IS NOT NULL AS owned
          FROM join_source c LEFT JOIN owned o ON {" AND ".join(f"o.{key} = c.{key}" for key in RESOURCE)})
        GROUP BY provider, resource_id, tags, instance_type, bucket, currency, owned, s IS NULL,
          CASE WHEN owned THEN s END, CASE WHEN owned THEN e END"""
    )


def place(session: Any, scales: Scales) -> None:
    """Table ``placed``: the charges by hour with their owner, and those that have none as they are (``hour`` NULL).

    Needs tables ``owners`` (RESOURCE, cluster, node, matched_by, since, until) and ``known`` (RESOURCE, instance_type, reason,
    names, candidates, machine)."""
    keys = ", ".join(RESOURCE)
    session.execute(f"CREATE OR REPLACE TEMP TABLE owned AS SELECT DISTINCT {keys} FROM owners")
    _gather(session)
    shared = "provider, resource_id, tags, instance_type, bucket, currency, account, region"
    whole = ", ".join(f"CAST({name} AS DECIMAL(38, {scales.of(name)})) AS {name}" for name in (*COSTS, "hours"))
    one = "e = s + INTERVAL 1 HOUR AND s = date_trunc('hour', s)"
    session.execute(
        f"""CREATE OR REPLACE TEMP VIEW hourly AS
        SELECT {shared}, s AS hour, {whole} FROM machine_charges WHERE owned AND {one}
        UNION ALL
        SELECT {shared}, hour, {", ".join(f"{_share(name, scales)} AS {name}" for name in (*COSTS, "hours"))}
        FROM ({_cut(shared, one)})"""
    )
    session.execute(
        f"""CREATE OR REPLACE TEMP TABLE placed AS
        SELECT h.*, h.hour AS s, h.hour + INTERVAL 1 HOUR AS e, o.cluster, o.node, o.matched_by
        FROM hourly h LEFT JOIN owners o ON {" AND ".join(f"o.{key} = h.{key}" for key in RESOURCE)}
          AND (o.since IS NULL OR h.hour >= o.since) AND (o.until IS NULL OR h.hour < o.until)
          AND (h.bucket <> 'unused_reservation' OR o.matched_by = 'person')
        UNION ALL BY NAME
        SELECT {shared}, {whole}, s, e FROM machine_charges WHERE NOT owned"""
    )


def _cut(shared: str, one: str) -> str:
    """Charges of several hours, a row an hour, with the part of the interval before it (``lo``) and up to its end (``hi``)."""
    columns = ", ".join((*COSTS, "hours"))
    quanta = ", ".join(f"quanta_of({name}) AS q_{name}" for name in (*COSTS, "hours"))
    return f"""
    SELECT *, date_diff('us', s, greatest(hour, s)) AS lo, date_diff('us', s, least(hour + INTERVAL 1 HOUR, e)) AS hi,
      date_diff('us', s, e) AS long
    FROM (SELECT {shared}, s, e, {columns}, {quanta},
      unnest(generate_series(date_trunc('hour', s), e - INTERVAL 1 MICROSECOND, INTERVAL 1 HOUR)) AS hour
      FROM machine_charges WHERE owned AND NOT ({one}))"""


def _share(name: str, scales: Scales) -> str:
    quanta = f"q_{name}"
    share = f"amount_of({quanta} * hi // long - {quanta} * lo // long)"
    scale = scales.of(name)
    part = f"CASE WHEN {name} < 0 THEN -{share} ELSE {share} END"
    if scale == QUANTUM_DIGITS:
        return part
    rest = (
        f"CASE WHEN lo = 0 THEN {name} - CASE WHEN {name} < 0 THEN -amount_of({quanta}) ELSE amount_of({quanta}) END ELSE 0 END"
    )
    return f"CAST({part} AS DECIMAL(38, {scale})) + CAST({rest} AS DECIMAL(38, {scale}))"


def _to_csv(session: Any, query: str, target: Path) -> Path:
    session.execute(f"COPY ({query}) TO {string(str(target))} (FORMAT csv, HEADER false, NULLSTR '\\N')")
    return target


def _cells(cells: Mapping[str, str], columns: tuple[str, ...]) -> str:
    named = {name: cells.get(name, f"p.{name}") for name in columns}
    return ", ".join(f"{sql} AS {name}_" for name, sql in named.items())


def write_node_charges(session: Any, delivery: int, columns: tuple[str, ...], target: Path) -> Path:
    """CSV of ``columns`` of ``models.tables_join.NodeChargeRow``. Needs table ``shapes`` (provider, instance_type, gpus)."""
    cells: Mapping[str, str] = {
        "delivery": str(delivery),
        "hour": "strftime(p.hour, '%Y-%m-%dT%H:00:00Z')",
        "instance_type": f"coalesce(max({_TYPE}), '')",
        "billed": "sum(p.billed)",
        "effective": "sum(p.effective)",
        "list": "CASE WHEN count(p.list) = count(*) THEN sum(p.list) END",
        "contracted": "CASE WHEN count(p.contracted) = count(*) THEN sum(p.contracted) END",
        "hours": "sum(p.hours)",
        "gpus": "max(g.gpus)",
        "matched_by": "min(p.matched_by)",
    }
    query = (
        f"SELECT {_cells(cells, columns)} FROM placed p {_KNOWN} "
        f"LEFT JOIN shapes g ON g.provider = p.provider AND g.instance_type = {_TYPE} "
        "WHERE p.node IS NOT NULL GROUP BY p.cluster, p.node, p.hour, p.resource_id, p.bucket, p.currency"
    )
    return _to_csv(session, query, target)


_KNOWN = f"JOIN known k ON {' AND '.join(f'k.{key} = p.{key}' for key in RESOURCE)}"
_TYPE = "CASE WHEN p.instance_type = '' THEN k.instance_type ELSE p.instance_type END"
_TIME = "strftime({}, '%Y-%m-%dT%H:%M:%S.%fZ')"
_REASON = (
    "CASE WHEN p.s IS NULL THEN 'no time of use' WHEN p.matched_by = 'person' THEN 'ignored' "
    "WHEN p.bucket = 'unused_reservation' THEN 'unused' ELSE k.reason END"
)


def write_unmatched(session: Any, delivery: int, columns: tuple[str, ...], target: Path) -> Path:
    """CSV of ``columns`` of ``models.tables_join.ChargeUnmatchedRow``: the rest of ``placed``."""
    cells: Mapping[str, str] = {
        "delivery": str(delivery),
        "instance_type": _TYPE,
        "reason": _REASON,
        "account": "any_value(p.account)",
        "region": "any_value(p.region)",
        "names": "any_value(k.names)",
        "candidates": "any_value(k.candidates)",
        "first_at": _TIME.format("min(p.s)"),
        "last_at": _TIME.format("max(p.e)"),
        "hours": "sum(p.hours)",
        "billed": "sum(p.billed)",
        "effective": "sum(p.effective)",
        "list": "CASE WHEN count(p.list) = count(*) THEN sum(p.list) END",
        "contracted": "CASE WHEN count(p.contracted) = count(*) THEN sum(p.contracted) END",
    }
    query = (
        f"SELECT {_cells(cells, columns)} FROM placed p {_KNOWN} "
        f"WHERE p.node IS NULL AND k.machine GROUP BY p.provider, p.resource_id, {_TYPE}, p.bucket, p.currency, {_REASON}"
    )
    return _to_csv(session, query, target)


def covered_hours(session: Any) -> tuple[Any, Any]:
    """First hour and end of the last hour of a machine's own charges; (None, None) without any."""
    row = session.execute(
        f"SELECT date_trunc('hour', min(s)), date_trunc('hour', max(e - INTERVAL 1 MICROSECOND)) + INTERVAL 1 HOUR "
        f"FROM machine_charges WHERE bucket IN {strings(JOINED)}"
    ).fetchone()
    return row[0], row[1]
