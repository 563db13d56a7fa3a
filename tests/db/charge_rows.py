"""Bills and what they say machines cost, as the join leaves it, for tests of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, insert, text, update

from core.node_charge import NodeCharge
from models.billing_repo import BillVersion, NewBill, add_version, current_of, supersede
from models.node_charge_repo import replace_node_charges
from models.tables import BillDeliveryRow, ChargeDayRow

HOUR = timedelta(hours=1)
_MARK = text("""
    INSERT INTO dirty_window (cluster, namespace, model_id, window_start, marked_at)
    SELECT DISTINCT h.cluster, h.namespace, h.model_id, h.window_start, CAST(:at AS timestamptz)
    FROM node_charge c
    JOIN node_service s ON s.cluster = c.cluster AND s.node = c.node
        AND s.in_service_from < c.hour + interval '1 hour' AND (s.in_service_to IS NULL OR s.in_service_to > c.hour)
    JOIN ledger_head h ON (h.cluster, h.namespace, h.model_id) = (s.cluster, s.namespace, s.model_id)
        AND h.window_start >= c.hour AND h.window_start < c.hour + interval '1 hour'
    WHERE c.delivery = :delivery ORDER BY 1, 2, 3, 4
    ON CONFLICT (cluster, namespace, model_id, window_start) DO UPDATE SET marked_at = excluded.marked_at
""")


def bill(
    connection: Connection, at: datetime, *, period: date = date(2026, 7, 1), is_final: bool = False, export: str = "cur"
) -> BillVersion:
    """The next version of a month's delivery; the former one is superseded and its machine charges go."""
    former = current_of(connection, "aws", export, period)
    if former is not None:
        mark_delivery(connection, former.id, at)
        replace_node_charges(connection, former.id, [])
        supersede(connection, former, "a later delivery", at)
    return add_version(
        connection,
        NewBill(
            "aws", export, period, f"{export}-{at.isoformat()}", "aws-cur", "test", "current", f"{export} {at.isoformat()}", at,
            is_final=is_final, invoice_ids=["INV-1"] if is_final else [],
        ),
    )  # fmt: skip


def machine_hours(
    connection: Connection, delivery: BillVersion, at: datetime, first: datetime, hours: int = 1, effective: str = "0.52",
    **changes: Any,
) -> None:  # fmt: skip
    """Hours of node1 (one GPU) of the ledger's tests, each at a cost; windows they touch are marked."""
    rows = [node_charge(delivery, first + n * HOUR, effective, **changes) for n in range(hours)]
    add_node_charges(connection, delivery, rows, at)


def add_node_charges(connection: Connection, delivery: BillVersion, rows: Iterable[NodeCharge], at: datetime) -> None:
    replace_node_charges(connection, delivery.id, rows)
    mark_delivery(connection, delivery.id, at)


def node_charge(delivery: BillVersion, hour: datetime, effective: str, **changes: Any) -> NodeCharge:
    given: dict[str, Any] = {
        "cluster": "lab", "node": "node1", "hour": hour, "currency": "USD", "billed": Decimal(effective),
        "effective": Decimal(effective), "list": Decimal("1.006"), "contracted": None, "hours": Decimal(1), "gpus": 1,
        "resource_id": "i-1", "instance_type": "g5.xlarge", "source": "", "is_final": False, "delivery": delivery.id,
    }  # fmt: skip
    return NodeCharge(**{**given, **changes})


def mark_delivery(connection: Connection, delivery: int, at: datetime) -> None:
    """Mark the closed windows of its machines' hours, as the join does where money or finality changed."""
    connection.execute(_MARK, {"delivery": delivery, "at": at})


def make_final(connection: Connection, delivery: BillVersion, at: datetime) -> None:
    connection.execute(update(BillDeliveryRow).where(BillDeliveryRow.id == delivery.id).values(is_final=True))
    mark_delivery(connection, delivery.id, at)


def charge_day(connection: Connection, delivery: BillVersion, day: date | None, effective: str, **changes: Any) -> None:
    """A charge that is no machine's: by default storage."""
    row: dict[str, Any] = {
        "delivery": delivery.id, "billing_period": delivery.billing_period, "day": day, "bucket": "non_gpu", "kind": "usage",
        "service": "AmazonS3", "currency": "USD", "tags": {}, "list_known": True, "rows": 1, "billed": Decimal(effective),
        "effective": Decimal(effective), "memo": Decimal(0), "provider": "aws", "charge_category": "Usage",
    }  # fmt: skip
    empty = (
        "billing_account", "account", "region", "resource_id", "instance_type", "sku", "meter", "commitment_id", "charge_class",
        "invoice_id", "unit",
    )  # fmt: skip
    connection.execute(insert(ChargeDayRow), [{**dict.fromkeys(empty, ""), **row, **changes}])


def versions_of(connection: Connection, start: datetime) -> list[Any]:
    """(version, state, capacity_cost, charged_cost, estimate_cost, price_source) of a quarter hour, oldest first."""
    query = """SELECT version, state, capacity_cost, charged_cost, estimate_cost, price_source FROM ledger_window
               WHERE window_start = :start ORDER BY version"""
    return list(connection.execute(text(query), {"start": start}))
