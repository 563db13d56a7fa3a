"""What nodes cost by the bills: effective, billed and list cost of an hour and of a GPU-hour, and the parts of the price."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import Connection

from core.capacity import HOUR_US
from core.capacity_charges import HOUR, by_machine_hour
from core.charge_join import Machine, Node
from core.money import CONTEXT, ZERO, quantize, total
from core.node_price import NodeParts, Shape, by_aws_weights
from core.rates import Rate, rate_at
from core.windows import Window, floor_time
from ingest.billing.instance_types import instance_type
from models.join_repo import read_machines
from models.join_views import node_costs
from models.node_charge_repo import read_node_charges
from models.rates_repo import read_rates
from models.trueup_repo import hour_shares

COSTS = ("effective", "billed", "list")
ONLY_GPUS = "its CPU and memory are not known: all of it to its GPUs"


def node_rates(connection: Connection, window: Window, *, by_hour: bool = False) -> list[dict[str, Any]]:
    """Rows of ``models.join_views.node_costs`` with, for each of effective, billed and list, ``…_per_hour`` and
    ``…_per_gpu_hour`` (None: hours or GPUs are not known), and the effective cost as ``gpu_cost`` {type: amount}, ``cpu_cost``,
    ``memory_cost`` (they add up to it exactly; None: what the machine has is not known) with ``parts_rule``;
    and what no deployment held of it, as ``reconcile`` counts it: ``unassigned_cost`` (effective), ``unassigned_gpu_hours``."""
    machines = read_machines(connection)
    gpus = {machine.node: dict(machine.gpus) for machine in machines if machine.gpus}
    types = _told_types(machines)
    rates = read_rates(connection, window)
    rows = node_costs(connection, window, by_hour=by_hour)
    free = _unassigned(connection, window, by_hour=by_hour)
    for row in rows:
        row |= free[_key(row, by_hour=by_hour)].figures()
        node = Node(row["cluster"], row["node"])
        row["instance_type"] = row["instance_type"] or types.get(node, "")
        row |= _per_hour(row)
        row |= _parts(row, gpus.get(node, {}), rates, window)
    return rows


@dataclass(slots=True)
class _Free:
    """What nobody held of a row: effective cost, and GPU microseconds (None: its GPUs are not known)."""

    cost: Decimal = ZERO
    gpu_us: int | None = 0

    def figures(self) -> dict[str, Decimal | None]:
        with localcontext(CONTEXT):
            hours = None if self.gpu_us is None else quantize(Decimal(self.gpu_us) / HOUR_US)
        return {"unassigned_cost": self.cost, "unassigned_gpu_hours": hours}


def _key(row: Mapping[str, Any], *, by_hour: bool) -> Hashable:
    names = ("cluster", "node", "instance_type", "resource_id", "currency")
    return (row["hour"] if by_hour else None, *(row[name] for name in names))


def _unassigned(connection: Connection, window: Window, *, by_hour: bool) -> dict[Hashable, _Free]:
    """By the keys of ``node_costs``. An hour that several resources or currencies charge is the running one's."""
    span = Window(floor_time(window.start, HOUR), window.end)
    charged = by_machine_hour(c for c in read_node_charges(connection, span) if span.contains(c.hour))
    found: dict[Hashable, _Free] = defaultdict(_Free)
    for share in hour_shares(connection, span):
        if not share.is_billed:
            continue
        group = charged[share.cluster, share.node, share.hour]
        for currency in sorted({money.currency for money in share.shares}):
            own = [c for c in group if c.currency == currency]
            resource = max(own, key=lambda c: (c.hours, c.resource_id)).resource_id
            type_ = max(c.instance_type for c in own if c.resource_id == resource)
            free = found[share.hour if by_hour else None, share.cluster, share.node, type_, resource, currency]
            free.cost = total((free.cost, *(money.unassigned for money in share.shares if money.currency == currency)))
            if any(c.hours for c in own):
                free.gpu_us = None if free.gpu_us is None or share.free_us is None else free.gpu_us + share.free_us
    return found


def _told_types(machines: Sequence[Machine]) -> dict[Node, str]:
    return {machine.node: machine.instance_type for machine in machines if machine.instance_type}


def _per_hour(row: Mapping[str, Any]) -> dict[str, Decimal | None]:
    """Divided last."""
    hours: Decimal = row["hours"]
    gpu_hours = hours * row["gpus"] if row["gpus"] else Decimal(0)
    found: dict[str, Decimal | None] = {}
    with localcontext(CONTEXT):
        for name in COSTS:
            cost = row[f"{name}_cost"]
            found[f"{name}_per_hour"] = quantize(cost / hours) if cost is not None and hours else None
            found[f"{name}_per_gpu_hour"] = quantize(cost / gpu_hours) if cost is not None and gpu_hours else None
    return found


def _parts(row: Mapping[str, Any], gpus: Mapping[str, int], rates: Sequence[Rate], window: Window) -> dict[str, Any]:
    machine = instance_type("", row["instance_type"])
    parts: NodeParts | None = None
    if machine is not None:
        parts = by_aws_weights(row["effective_cost"], machine.shape)
    elif gpus:
        listed = {name: _list_rate(rates, name, row["currency"], window) for name in gpus}
        parts = by_aws_weights(row["effective_cost"], Shape(gpus, 0, 0), listed)
    if parts is None:
        return {"gpu_cost": None, "cpu_cost": None, "memory_cost": None, "parts_rule": "what the machine has is not known"}
    rule = parts.rule if machine is not None else f"{ONLY_GPUS}; {parts.rule}"
    return {"gpu_cost": dict(parts.gpu), "cpu_cost": parts.cpu, "memory_cost": parts.memory, "parts_rule": rule}


def _list_rate(rates: Sequence[Rate], gpu: str, currency: str, window: Window) -> Decimal:
    """Zero where it is not known: then all types weigh the same."""
    rate = rate_at(rates, "gpu_hour", gpu, window.start, "list").rate
    return rate.price.amount if rate is not None and rate.price.currency == currency else Decimal(0)
