"""What became of the bills' machine money: held by deployments, unassigned, rounding; and the ledger lines priced from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any, cast

from sqlalchemy import Connection, Row, Table, func, select, text

from core.capacity import NodeService
from core.capacity_charges import HourShare, MoneyShare, by_machine_hour, share_hour
from core.money import ZERO, total
from core.node_charge import NodeCharge
from core.usage import Deployment
from core.windows import Window, zone
from models.ledger_inputs import HOUR, whole_hours
from models.node_charge_repo import read_node_charges
from models.rates_repo import read_services
from models.tables_billing import BillDeliveryRow
from models.tables_join import NodeChargeRow

_CHARGE = cast(Table, NodeChargeRow.__table__)
_BILL = cast(Table, BillDeliveryRow.__table__)
_HEAD = "JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)"
_SPAN = "w.window_start >= :start AND w.window_start < :end AND h.window_start >= :start AND h.window_start < :end"
_WINDOWS = text(f"""
    SELECT CAST(date_trunc('month', w.window_start, :zone) AT TIME ZONE :zone AS date) AS month, w.currency, w.state,
           count(*) AS windows, sum(w.capacity_cost) AS capacity, sum(w.charged_cost) AS charged,
           sum(w.capacity_cost - w.estimate_cost) AS trueup
    FROM ledger_window w {_HEAD} WHERE {_SPAN} AND w.charged_cost IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
""")
_LINES = text(f"""
    SELECT CAST(date_trunc('month', w.window_start, :zone) AT TIME ZONE :zone AS date) AS month, w.currency, l.kind,
           sum(l.cost) AS cost
    FROM ledger_line l JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version) {_HEAD}
    WHERE {_SPAN} AND l.window_start >= :start AND l.window_start < :end AND w.charged_cost IS NOT NULL
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
""")
_BILLED = text("""
    SELECT delivery, CAST(date_trunc('month', hour, :zone) AT TIME ZONE :zone AS date) AS month, currency, sum(billed) AS billed
    FROM node_charge WHERE hour >= :start AND hour < :end GROUP BY 1, 2, 3
""")
_STATES = text(f"""
    SELECT w.state, w.capacity_cost IS NULL AS unpriced, count(*) AS windows, min(w.detail ->> 'reason') AS reason
    FROM ledger_window w {_HEAD} WHERE {_SPAN} GROUP BY 1, 2 ORDER BY 1, 2
""")
_MARKED = text("SELECT count(*) FROM dirty_window WHERE window_start >= :start AND window_start < :end")


@dataclass(frozen=True, slots=True)
class NodeMoney:
    """Machine money of one delivery, month of use and currency: effective == assigned + unassigned + rounding, exactly.

    ``assigned`` is what deployments hold by the inventory of now, ``by_deployment`` whose it is; ``by_node`` the unassigned money
    by (cluster, node). The ledger has it once its windows are closed again."""

    delivery: int
    source: str
    is_final: bool
    billing_period: date
    usage_month: date
    currency: str
    billed: Decimal
    effective: Decimal
    assigned: Decimal
    unassigned: Decimal
    rounding: Decimal
    by_deployment: Mapping[Deployment, Decimal] = field(default_factory=dict)
    by_node: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChargedLedger:
    """Newest closed windows that a bill prices, by month of use and currency: capacity == charged + by_rates == Σ lines.

    ``by_rates``: machines without a bill, and energy, in the same windows. ``trueup``: capacity less what rates alone had said.
    ``lines``: cost by kind (served, wasted, unattributed, idle, starting). ``states``: windows by state."""

    usage_month: date
    currency: str
    capacity: Decimal
    charged: Decimal
    by_rates: Decimal
    trueup: Decimal
    lines: Mapping[str, Decimal]
    states: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the closed windows of a time are: by state (``unpriced`` apart, with a reason), and how many wait to be closed
    again."""

    states: Mapping[str, int]
    unpriced: int
    reason: str
    marked: int


def node_money(
    connection: Connection, *, deliveries: Collection[int] | None = None, window: Window | None = None, zone_name: str = "UTC"
) -> list[NodeMoney]:
    """Of current deliveries (these, or all), of machine hours that start in ``window`` (or ever); months of the reporting zone.

    In the order of delivery, month, currency."""
    span = window or _span_of(connection, deliveries)
    if span is None:
        return []
    sums: dict[tuple[int, date, str], _Sum] = defaultdict(_Sum)
    for hour in hour_shares(connection, span):
        month = hour.hour.astimezone(zone(zone_name)).date().replace(day=1)
        for share in hour.shares:
            if deliveries is None or share.delivery in deliveries:
                sums[share.delivery, month, share.currency].add(hour, share)
    billed = _billed_money(connection, span, zone_name)
    periods = {r.id: r.billing_period for r in connection.execute(select(_BILL.c.id, _BILL.c.billing_period))}
    return [
        NodeMoney(
            delivery, found.source, found.is_final, periods[delivery], month, currency, billed[delivery, month, currency],
            total(found.money), total(found.held), total(found.unassigned), total(found.rounding),
            {d: total(parts) for d, parts in sorted(found.by_deployment.items())},
            {node: total(parts) for node, parts in sorted(found.by_node.items())},
        )
        for (delivery, month, currency), found in sorted(sums.items())
    ]  # fmt: skip


def hour_shares(connection: Connection, window: Window) -> Iterator[HourShare]:
    """Every billed machine hour that starts in ``window``, shared by the inventory of now, on the effective basis."""
    charges = [c for c in read_node_charges(connection, window) if window.contains(c.hour)]
    if not charges:
        return
    span = whole_hours(Window(min(c.hour for c in charges), max(c.hour for c in charges) + HOUR))
    on_node: dict[tuple[str, str], list[NodeService]] = defaultdict(list)
    for service in read_services(connection, span):
        on_node[service.deployment.cluster, service.node].append(service)
    kept: dict[Hashable, HourShare] = {}
    for (cluster, node, at), group in by_machine_hour(charges).items():
        services = on_node[cluster, node]
        alike = _alike(group, services, Window(at, at + HOUR))
        if alike is None:
            yield share_hour(group, services)
            continue
        if alike not in kept:
            kept[alike] = share_hour(group, services)
        yield replace(kept[alike], hour=at)


def _alike(charges: Sequence[NodeCharge], services: Sequence[NodeService], hour: Window) -> Hashable | None:
    """Hours of a machine with the same key are shared alike: machines cost the same and are held alike hour after hour.

    None where a service begins or ends within the hour."""
    present: list[int] = []
    for n, service in enumerate(services):
        if service.since <= hour.start and (service.until is None or service.until >= hour.end):
            present.append(n)
        elif service.since < hour.end and (service.until is None or service.until > hour.start):
            return None
    costs = tuple((c.delivery, c.currency, c.bucket, c.effective, c.hours, c.gpus) for c in charges)
    return charges[0].cluster, charges[0].node, costs, tuple(present)


def charged_ledger(connection: Connection, window: Window, zone_name: str = "UTC") -> list[ChargedLedger]:
    """By month and currency, of windows that start in ``window``."""
    bound = {"start": window.start, "end": window.end, "zone": zone(zone_name).key}
    lines: dict[tuple[date, str], dict[str, Decimal]] = defaultdict(dict)
    for r in connection.execute(_LINES, bound):
        lines[r.month, r.currency][r.kind] = r.cost
    sums: dict[tuple[date, str], list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_WINDOWS, bound):
        sums[row.month, row.currency].append(row)
    found: list[ChargedLedger] = []
    for key, parts in sorted(sums.items()):
        capacity, charged, trueup = (total(getattr(r, name) or ZERO for r in parts) for name in ("capacity", "charged", "trueup"))
        states = {r.state: r.windows for r in parts}
        found.append(ChargedLedger(*key, capacity, charged, total((capacity, -charged)), trueup, lines[key], states))
    return found


def standing(connection: Connection, window: Window) -> Standing:
    """Of the newest versions of windows that start in ``window``."""
    bound = {"start": window.start, "end": window.end}
    states: dict[str, int] = {}
    unpriced, reason = 0, ""
    for r in connection.execute(_STATES, bound):
        if r.unpriced:
            unpriced, reason = unpriced + r.windows, r.reason or ""
        else:
            states[r.state] = r.windows
    return Standing(states, unpriced, reason, int(connection.execute(_MARKED, bound).scalar_one()))


class _Sum:
    """Parts of one (delivery, month, currency)."""

    def __init__(self) -> None:
        self.source, self.is_final = "", False
        self.money: list[Decimal] = []
        self.held: list[Decimal] = []
        self.unassigned: list[Decimal] = []
        self.rounding: list[Decimal] = []
        self.by_deployment: dict[Deployment, list[Decimal]] = defaultdict(list)
        self.by_node: dict[tuple[str, str], list[Decimal]] = defaultdict(list)

    def add(self, hour: HourShare, share: MoneyShare) -> None:
        self.source, self.is_final = share.source, share.is_final
        self.money.append(share.money)
        self.unassigned.append(share.unassigned)
        self.rounding.append(share.rounding)
        self.held += share.held.values()
        for (service, _), amount in share.held.items():
            self.by_deployment[service.deployment].append(amount)
        if share.unassigned:
            self.by_node[hour.cluster, hour.node].append(share.unassigned)


def _span_of(connection: Connection, deliveries: Collection[int] | None) -> Window | None:
    query = select(func.min(_CHARGE.c.hour), func.max(_CHARGE.c.hour)).join(_BILL, _BILL.c.id == _CHARGE.c.delivery)
    query = query.where(_BILL.c.status == "current")
    if deliveries is not None:
        query = query.where(_CHARGE.c.delivery.in_(sorted(deliveries)))
    first, last = connection.execute(query).one()
    return None if first is None else Window(first, last + HOUR)


def _billed_money(connection: Connection, span: Window, zone_name: str) -> dict[tuple[int, date, str], Decimal]:
    found: dict[tuple[int, date, str], Decimal] = defaultdict(lambda: ZERO)
    for r in connection.execute(_BILLED, {"start": span.start, "end": span.end, "zone": zone(zone_name).key}):
        found[r.delivery, r.month, r.currency] = r.billed
    return found
