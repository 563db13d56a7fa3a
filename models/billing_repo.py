"""Bill deliveries and their charges by day: written whole in one transaction, read by any key on both bases and both times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, cast

from sqlalchemy import Connection, Table, insert, select, text, update

from core.billing import NOT_IN_SAVINGS, WITHOUT_LIST
from core.errors import BadInput
from core.windows import Window
from models.copy_csv import copy_csv
from models.tables_billing import BillDeliveryRow, ChargeDayRow

_TABLE = cast(Table, BillDeliveryRow.__table__)
CHARGE_DAY_COLUMNS: tuple[str, ...] = tuple(c.name for c in cast(Table, ChargeDayRow.__table__).columns if c.identity is None)
"""What a line of ``copy_charges`` holds, in order."""
CHARGE_KEYS: tuple[str, ...] = (
    "source", "export", "billing_period", "day", "month", "provider", "billing_account", "account", "service", "region",
    "resource_id", "instance_type", "sku", "meter", "commitment_id", "bucket", "kind", "charge_category", "charge_class",
    "invoice_id", "unit",
)  # fmt: skip
"""Keys of ``charges_by``, beside ``tag:NAME``; the currency is always one."""


@dataclass(frozen=True, slots=True)
class BillVersion:
    """One version of a delivery; ``totals`` by currency: {currency, billed, effective, list, contracted} as decimal texts."""

    id: int
    source: str
    export: str
    billing_period: date
    version: int
    delivery_id: str
    format: str
    origin: str
    status: str
    reason: str
    digest: str
    rows: int
    totals: list[dict[str, Any]]
    invoice_ids: list[str]
    is_final: bool
    folder: str
    notes: list[str]
    received_at: datetime
    superseded_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewBill:
    """What is known of a version before it has an id. ``status`` current or refused."""

    source: str
    export: str
    billing_period: date
    delivery_id: str
    format: str
    origin: str
    status: str
    digest: str
    received_at: datetime
    reason: str = ""
    rows: int = 0
    totals: Sequence[Mapping[str, Any]] = ()
    invoice_ids: Sequence[str] = ()
    is_final: bool = False
    folder: str = ""
    notes: Sequence[str] = ()


def deliveries(connection: Connection, *, every: bool = False) -> list[BillVersion]:
    """Current deliveries, or every version, by source, export, period and version."""
    query = select(_TABLE).order_by(_TABLE.c.source, _TABLE.c.export, _TABLE.c.billing_period, _TABLE.c.version)
    if not every:
        query = query.where(_TABLE.c.status == "current")
    return [BillVersion(**row._mapping) for row in connection.execute(query)]


def versions_with_digest(connection: Connection, digest: str) -> list[BillVersion]:
    """Versions of the same content read the same way, the latest last."""
    query = select(_TABLE).where(_TABLE.c.digest == digest).order_by(_TABLE.c.id)
    return [BillVersion(**row._mapping) for row in connection.execute(query)]


def current_of(connection: Connection, source: str, export: str, period: date) -> BillVersion | None:
    query = select(_TABLE).where(
        _TABLE.c.source == source, _TABLE.c.export == export, _TABLE.c.billing_period == period, _TABLE.c.status == "current"
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else BillVersion(**row._mapping)


def lock_bills(connection: Connection) -> None:
    """One import at a time changes what is current; long statements are allowed until the transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(7360714)"))
    connection.execute(text("SET LOCAL statement_timeout = 0"))


def add_version(connection: Connection, bill: NewBill) -> BillVersion:
    """The next version of its (source, export, period). A current one must have been made room for by ``supersede``."""
    given = {name: getattr(bill, name) for name in NewBill.__dataclass_fields__}
    given |= {name: list(given[name]) for name in ("totals", "invoice_ids", "notes")}
    last = connection.execute(
        text("SELECT coalesce(max(version), 0) FROM bill_delivery WHERE source = :s AND export = :e AND billing_period = :p"),
        {"s": bill.source, "e": bill.export, "p": bill.billing_period},
    ).scalar_one()
    row = connection.execute(insert(_TABLE).values(**given, version=last + 1).returning(_TABLE)).one()
    return BillVersion(**row._mapping)


def supersede(connection: Connection, bill: BillVersion, reason: str, at: datetime) -> None:
    """Its charges stay and are read no more, but ``as_of`` an earlier instant."""
    connection.execute(update(_TABLE).where(_TABLE.c.id == bill.id).values(status="superseded", reason=reason, superseded_at=at))


def copy_charges(connection: Connection, chunks: Iterable[bytes]) -> None:
    """CSV of CHARGE_DAY_COLUMNS, without a header, unknown written as ``\\N``."""
    copy_csv(connection, "charge_day", CHARGE_DAY_COLUMNS, chunks, "charge")


def overlapping(connection: Connection, bill: BillVersion) -> list[str]:
    """Exports whose current delivery of the same period charges an account and day that ``bill`` charges as well."""
    return list(connection.execute(text(_OVERLAP), {"id": bill.id, "period": bill.billing_period}).scalars())


_OVERLAP = """
WITH own AS (SELECT DISTINCT provider, billing_account, account, currency, day FROM charge_day WHERE delivery = :id)
SELECT DISTINCT d.export FROM bill_delivery d JOIN charge_day c ON c.delivery = d.id
JOIN own USING (provider, billing_account, account, currency, day)
WHERE d.status = 'current' AND d.id <> :id AND d.billing_period = :period ORDER BY 1
"""


def charged_days(connection: Connection, bill: BillVersion) -> tuple[date | None, date | None]:
    """First and last day of use that has a charge."""
    row = connection.execute(text("SELECT min(day), max(day) FROM charge_day WHERE delivery = :id"), {"id": bill.id}).one()
    return row[0], row[1]


@dataclass(frozen=True, slots=True)
class Restated:
    """What a version changed against the one before, in one currency: charges by day that came, went, or have another cost."""

    currency: str
    added: int
    removed: int
    changed: int
    billed_added: Decimal
    billed_removed: Decimal
    billed_changed: Decimal
    billed: Decimal
    """The whole difference: the three parts' sum."""
    effective: Decimal


_SAME = (
    "day", "provider", "billing_account", "account", "service", "region", "resource_id", "instance_type", "sku", "meter",
    "commitment_id", "bucket", "kind", "charge_category", "charge_class", "currency", "unit", "tags",
)  # fmt: skip
"""What makes a charge by day the same in two versions; the invoice's number is not among it: it comes when the month is final."""
_PAIRS = f"""
SELECT {", ".join(_SAME)}, bool_or(delivery = :old) AS was, bool_or(delivery = :new) AS is_now,
  sum(CASE WHEN delivery = :new THEN billed ELSE -billed END) AS billed,
  sum(CASE WHEN delivery = :new THEN effective ELSE -effective END) AS effective
FROM charge_day WHERE delivery IN (:old, :new) GROUP BY {", ".join(_SAME)}
"""


def restatement(connection: Connection, old: BillVersion, new: BillVersion) -> list[Restated]:
    """The difference of two versions, by currency; their billed parts add up to it."""
    query = f"""
    SELECT currency, count(*) FILTER (WHERE NOT was), count(*) FILTER (WHERE NOT is_now),
      count(*) FILTER (WHERE was AND is_now AND (billed <> 0 OR effective <> 0)),
      coalesce(sum(billed) FILTER (WHERE NOT was), 0), coalesce(sum(billed) FILTER (WHERE NOT is_now), 0),
      coalesce(sum(billed) FILTER (WHERE was AND is_now), 0), sum(billed), sum(effective)
    FROM ({_PAIRS}) AS pairs GROUP BY currency ORDER BY currency"""
    return [Restated(*row) for row in connection.execute(text(query), {"old": old.id, "new": new.id})]


def restated_charges(connection: Connection, old: BillVersion, new: BillVersion, limit: int = 100) -> list[dict[str, Any]]:
    """The charges behind a restatement, the largest first."""
    query = f"""
    SELECT * FROM ({_PAIRS}) AS pairs WHERE billed <> 0 OR effective <> 0 OR NOT was OR NOT is_now
    ORDER BY abs(billed) + abs(effective) DESC, day, resource_id, meter LIMIT :limit"""
    rows = connection.execute(text(query), {"old": old.id, "new": new.id, "limit": limit}).mappings()
    return [{**row, "change": "added" if not row["was"] else "changed" if row["is_now"] else "removed"} for row in rows]


def charges_by(
    connection: Connection,
    keys: Sequence[str],
    *,
    billing_months: tuple[date, date] | None = None,
    days: Window | None = None,
    filters: Mapping[str, str] | None = None,
    as_of: datetime | None = None,
) -> list[dict[str, Any]]:
    """Costs of the current deliveries (or of those that held ``as_of``) by ``keys`` and currency.

    ``billing_months``: issuer's periods that begin in [from, to); ``days``: UTC days of use in [start, end), a charge that tells
    none counting on its billing period's first: the two answers to "the cost of July".

    ``list_cost`` leaves out rows that buy other rows, credits, refunds, discounts and taxes;
    ``effective_without_list`` is what has no list price.
    ``memo_cost`` repeats cost that stands in other rows. Raises BadInput for an unknown key.
    """
    columns = [_key(key) for key in keys]
    parameters: dict[str, Any] = {"hidden": sorted(NOT_IN_SAVINGS), "without_list": sorted(WITHOUT_LIST)}
    where = ["d.status = 'current'"] if as_of is None else [_HELD]
    if as_of is not None:
        parameters["as_of"] = as_of
    if billing_months is not None:
        where.append("c.billing_period >= :first AND c.billing_period < :last")
        parameters |= {"first": billing_months[0], "last": billing_months[1]}
    if days is not None:
        where.append(f"{_DAY} >= :start AND {_DAY} < :end")
        parameters |= {"start": days.start.date(), "end": days.end.date()}
    for number, (key, value) in enumerate((filters or {}).items()):
        where.append(f"{_key(key, 'where')}::text = :value{number}")
        parameters[f"value{number}"] = value
    named = [f"{sql} AS k{number}" for number, sql in enumerate(columns)]
    groups = ", ".join([*(f"k{number}" for number in range(len(columns))), "c.currency"])
    query = f"""
    SELECT {", ".join([*named, "c.currency"])}, sum(c.rows)::bigint, sum(billed), sum(effective),
      sum(CASE WHEN {_LISTED} THEN list END), sum(CASE WHEN {_LISTED} THEN contracted END),
      coalesce(sum(CASE WHEN {_LISTED} AND NOT list_known THEN effective END), 0), sum(memo), sum(hours)
    FROM charge_day c JOIN bill_delivery d ON d.id = c.delivery WHERE {" AND ".join(where)}
    GROUP BY {groups} ORDER BY {groups}"""
    out = (*keys, "currency", "rows", "billed_cost", "effective_cost", "list_cost", "contracted_cost",
           "effective_without_list", "memo_cost", "hours")  # fmt: skip
    return [dict(zip(out, row, strict=True)) for row in connection.execute(text(query), parameters)]


_DAY = "coalesce(c.day, d.billing_period)"
_LISTED = "bucket <> ALL(:hidden) AND kind <> ALL(:without_list)"
_HELD = "d.status <> 'refused' AND d.received_at <= :as_of AND (d.superseded_at IS NULL OR d.superseded_at > :as_of)"
_TAG = re.compile(r"^tag:([^'\\]+)$")


def _key(key: str, field: str = "by") -> str:
    tag = _TAG.match(key)
    if tag:
        name = tag[1].replace(":", "\\:")
        forms = [f"c.tags ->> '{prefix}{name}'" for prefix in ("", "user\\:", "user_")]
        return f"coalesce({', '.join(forms)}, '')"
    if key == "currency":
        return "c.currency"
    if key not in CHARGE_KEYS:
        raise BadInput("is not a key of charges", field=field, value=key, hint=f"use {', '.join(CHARGE_KEYS)} or tag:NAME")
    if key in ("source", "export"):
        return f"d.{key}"
    return f"date_trunc('month', {_DAY})::date" if key == "month" else f"c.{key}"
