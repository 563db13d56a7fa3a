"""Node charges: rows <-> core values. Nothing here commits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, cast

from sqlalchemy import Connection, Table, delete, func, insert, select, tuple_

from core.node_charge import NodeCharge
from core.windows import Window
from models.tables_billing import BillDeliveryRow
from models.tables_join import NodeChargeRow

_TABLE = cast(Table, NodeChargeRow.__table__)
_BILL = cast(Table, BillDeliveryRow.__table__)
_OWN = tuple(column.name for column in _TABLE.columns)
_SOURCE = func.concat(
    _BILL.c.source, " ", _BILL.c.export, " ", func.to_char(_BILL.c.billing_period, "YYYY-MM"), " v", _BILL.c.version
).label("source")


def read_node_charges(
    connection: Connection, window: Window, nodes: Collection[tuple[str, str]] | None = None
) -> tuple[NodeCharge, ...]:
    """Charges of current deliveries whose hour meets ``window``, of these (cluster, node) or of all; in a fixed order."""
    first = func.date_trunc("hour", window.start, "UTC")
    query = (
        select(*_TABLE.columns, _SOURCE, _BILL.c.is_final)
        .join(_BILL, _BILL.c.id == _TABLE.c.delivery)
        .where(_BILL.c.status == "current", _TABLE.c.hour >= first, _TABLE.c.hour < window.end)
        .order_by(*_TABLE.primary_key.columns)
    )
    if nodes is not None:
        query = query.where(tuple_(_TABLE.c.cluster, _TABLE.c.node).in_(sorted(nodes)))
    return tuple(NodeCharge(**row._mapping) for row in connection.execute(query))


def replace_node_charges(connection: Connection, delivery: int, charges: Iterable[NodeCharge]) -> int:
    """What a delivery's charges are to machines, in place of what they were; returns how many rows now stand."""
    connection.execute(delete(_TABLE).where(_TABLE.c.delivery == delivery))
    rows: list[dict[str, Any]] = [{name: getattr(charge, name) for name in _OWN} for charge in charges]
    for first in range(0, len(rows), 10_000):
        connection.execute(insert(_TABLE), rows[first : first + 10_000])
    return len(rows)
