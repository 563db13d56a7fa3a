"""Prices and the GPU inventory: rows <-> core values. Nothing here commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, text, update

from core.capacity import NodeService
from core.discount import Discount, discounted
from core.errors import BadInput, Conflict, NotFound
from core.money import Money, quantize
from core.rates import Rate
from core.tariff import parse_band
from core.usage import Deployment
from core.windows import Window, require_utc
from models.tables_money import NodeServiceRow, RateRow
from models.tables_prices import RateDiscountRow

# Whole hours: a machine's billed hour is shared over all who held it in any part of the hour.
_MARK_DIRTY = text("""
    INSERT INTO dirty_window (cluster, namespace, model_id, window_start, marked_at)
    SELECT cluster, namespace, model_id, window_start, :at FROM ledger_head
    WHERE window_start >= least(:since - interval '15 minutes', date_trunc('hour', CAST(:since AS timestamptz), 'UTC'))
        AND (CAST(:until AS timestamptz) IS NULL
             OR window_start < date_trunc('hour', CAST(:until AS timestamptz) + interval '3599.999999 seconds', 'UTC'))
    ORDER BY 1, 2, 3, 4
    ON CONFLICT (cluster, namespace, model_id, window_start) DO UPDATE SET marked_at = excluded.marked_at
""")


_PRICES_LOCK = 7360703


def lock_prices(connection: Connection, *, shared: bool) -> None:
    """Held to the end of the transaction: a close shares it, a change of prices or inventory holds it alone. So a change is
    either seen by a close or finds the window closed and marks it."""
    name = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    connection.execute(text(f"SELECT {name}({_PRICES_LOCK})"))


def add_rates(connection: Connection, rates: Iterable[Rate], imported_at: datetime) -> int:
    """Append those rates that are not there word for word; returns how many. Closed windows they touch become dirty."""
    lock_prices(connection, shared=False)
    have = set(_stored(connection))
    fresh: list[Rate] = []
    for rate in rates:
        if quantize(rate.price.amount) != rate.price.amount:
            raise BadInput("has more than 12 decimals", field="price", value=str(rate.price.amount))
        stored = _canonical(rate)
        if stored not in have:
            have.add(stored)
            fresh.append(stored)
    if fresh:
        connection.execute(insert(RateRow), [_rate_values(r, imported_at) for r in fresh])
        touched = {(r.valid_from, r.valid_to) for r in fresh}
        for since, until in sorted(touched, key=repr):
            connection.execute(_MARK_DIRTY, {"at": imported_at, "since": since, "until": until})
    return len(fresh)


def read_rates(connection: Connection, window: Window | None = None) -> tuple[Rate, ...]:
    """Rates valid at any time of ``window`` (all without one), in the order they were imported; behind them the contracted rates
    that typed discounts make of list prices."""
    stored = _stored(connection, window)
    made = discounted(stored, [one.discount for one in read_discounts(connection)])
    if window is not None:
        made = tuple(r for r in made if r.valid_from < window.end and (r.valid_to is None or r.valid_to > window.start))
    return (*stored, *made)


def _stored(connection: Connection, window: Window | None = None) -> tuple[Rate, ...]:
    query = select(RateRow.__table__).order_by(RateRow.id)
    if window is not None:
        query = query.where(RateRow.valid_from < window.end, or_(RateRow.valid_to.is_(None), RateRow.valid_to > window.start))
    return tuple(_rate(row) for row in connection.execute(query))


@dataclass(frozen=True, slots=True)
class StoredDiscount:
    id: int
    typed_at: datetime
    discount: Discount


def read_discounts(connection: Connection) -> list[StoredDiscount]:
    """Every discount that ever holds, the oldest entry first; one ended before it began is left out."""
    found = connection.execute(select(RateDiscountRow.__table__).order_by(RateDiscountRow.id))
    return [
        StoredDiscount(row.id, row.typed_at, Discount(
            row.provider, row.kind, row.percent, row.valid_from, row.valid_to, row.reason, row.typed_by,
        ))
        for row in found if row.valid_to is None or row.valid_to > row.valid_from
    ]  # fmt: skip


def add_discount(connection: Connection, discount: Discount, now: datetime) -> int:
    """Put a discount in force; closed windows since its start become dirty. Returns its id."""
    lock_prices(connection, shared=False)
    values = {name: getattr(discount, name) for name in Discount.__dataclass_fields__}
    row = connection.execute(insert(RateDiscountRow).values(**values, typed_at=now).returning(RateDiscountRow.id)).one()
    connection.execute(_MARK_DIRTY, {"at": now, "since": discount.valid_from, "until": discount.valid_to})
    return int(row[0])


def end_discount(connection: Connection, discount_id: int, at: datetime, now: datetime) -> Discount:
    """End a discount at ``at``; an end at or before its start means that it never was. Raises NotFound; Conflict when it ends
    earlier already."""
    lock_prices(connection, shared=False)
    stored = next((one.discount for one in read_discounts(connection) if one.id == discount_id), None)
    if stored is None:
        raise NotFound(f"there is no discount {discount_id}", hint="`tokenfuse rates discount list` shows their numbers")
    if stored.valid_to is not None and stored.valid_to <= at:
        raise Conflict(f"discount {discount_id} ends at {stored.valid_to.isoformat()} already")
    end = max(at, stored.valid_from)
    connection.execute(update(RateDiscountRow).where(RateDiscountRow.id == discount_id).values(valid_to=end))
    connection.execute(_MARK_DIRTY, {"at": now, "since": end, "until": stored.valid_to})
    return stored


def declare_service(connection: Connection, service: NodeService, source: str) -> bool:
    """Put a target's GPUs into the inventory; True when that changed it.

    The same declaration again changes nothing. Other GPUs on a target in service end the former entry where the new begins.
    Closed windows since then become dirty. Raises BadInput for GPUs that are not named or counted.
    """
    if not service.gpu_type.strip():
        raise BadInput("must name the GPU type", field="gpu_type", value=service.gpu_type, hint="for example A10G")
    if service.gpu_count <= 0:
        raise BadInput("must be at least 1", field="gpu_count", value=service.gpu_count)
    lock_prices(connection, shared=False)
    d = service.deployment
    same = (
        NodeServiceRow.target == service.target, NodeServiceRow.cluster == d.cluster, NodeServiceRow.namespace == d.namespace,
        NodeServiceRow.model_id == d.model_id,
    )  # fmt: skip
    query = (
        select(NodeServiceRow.__table__).where(*same).order_by(NodeServiceRow.in_service_from.desc(), NodeServiceRow.id.desc())
    )
    former = connection.execute(query.limit(1)).first()
    if former is not None and former.in_service_to is None:
        if (former.node, former.gpu_type, former.gpu_count) == (service.node, service.gpu_type, service.gpu_count):
            return False
        ended = max(service.since, former.in_service_from)
        connection.execute(update(NodeServiceRow).where(NodeServiceRow.id == former.id).values(in_service_to=ended))
    connection.execute(insert(NodeServiceRow), [_service_values(service, source)])
    connection.execute(_MARK_DIRTY, {"at": require_utc(service.since), "since": service.since, "until": service.until})
    return True


def end_service(connection: Connection, target: str, at: datetime) -> int:
    """Take a target's GPUs out of service at ``at``; returns how many entries ended."""
    lock_prices(connection, shared=False)
    open_entries = (NodeServiceRow.target == target, NodeServiceRow.in_service_to.is_(None), NodeServiceRow.in_service_from < at)
    ended = connection.execute(update(NodeServiceRow).where(*open_entries).values(in_service_to=at)).rowcount
    if ended:
        connection.execute(_MARK_DIRTY, {"at": at, "since": at, "until": None})
    return ended


def read_services(connection: Connection, window: Window) -> tuple[NodeService, ...]:
    """Every service that holds GPUs at any time of the window."""
    query = (
        select(NodeServiceRow.__table__)
        .where(
            NodeServiceRow.in_service_from < window.end,
            or_(NodeServiceRow.in_service_to.is_(None), NodeServiceRow.in_service_to > window.start),
        )
        .order_by(NodeServiceRow.id)
    )
    return tuple(_service(row) for row in connection.execute(query))


def services_on_nodes_of(deployment: Deployment, services: Sequence[NodeService]) -> tuple[NodeService, ...]:
    """The deployment's own services and those of others on the same nodes."""
    nodes = {s.node for s in services if s.deployment == deployment and s.node}
    return tuple(s for s in services if s.deployment == deployment or s.node in nodes)


def _canonical(rate: Rate) -> Rate:
    price = Money(quantize(rate.price.amount), rate.price.currency)
    until = None if rate.valid_to is None else require_utc(rate.valid_to)
    return Rate(rate.kind, rate.sku, price, rate.charge_basis, rate.source, require_utc(rate.valid_from), until, rate.band)


def _rate_values(rate: Rate, imported_at: datetime) -> dict[str, Any]:
    return {
        "kind": rate.kind,
        "sku": rate.sku,
        "price": rate.price.amount,
        "currency": rate.price.currency,
        "charge_basis": rate.charge_basis,
        "source": rate.source,
        "valid_from": rate.valid_from,
        "valid_to": rate.valid_to,
        "imported_at": imported_at,
        "band": "" if rate.band is None else str(rate.band),
    }


def _rate(row: Row[Any]) -> Rate:
    price, band = Money(row.price, row.currency), parse_band(row.band) if row.band else None
    return Rate(row.kind, row.sku, price, row.charge_basis, row.source, row.valid_from, row.valid_to, band)


def _service_values(service: NodeService, source: str) -> dict[str, Any]:
    d = service.deployment
    return {
        "target": service.target,
        "node": service.node,
        "cluster": d.cluster,
        "namespace": d.namespace,
        "model_id": d.model_id,
        "gpu_type": service.gpu_type,
        "gpu_count": service.gpu_count,
        "source": source,
        "in_service_from": service.since,
        "in_service_to": service.until,
    }


def _service(row: Row[Any]) -> NodeService:
    deployment = Deployment(row.cluster, row.namespace, row.model_id)
    return NodeService(deployment, row.target, row.node, row.gpu_type, row.gpu_count, row.in_service_from, row.in_service_to)
