"""What nodes cost by the bills: effective, billed and list cost of an hour and of a GPU-hour, and the parts of the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import Connection

from core.charge_join import Machine, Node
from core.money import CONTEXT, quantize
from core.node_price import NodeParts, Shape, by_aws_weights
from core.rates import Rate, rate_at
from core.windows import Window
from ingest.billing.instance_types import instance_type
from models.join_repo import read_machines
from models.join_views import node_costs
from models.rates_repo import read_rates

COSTS = ("effective", "billed", "list")
ONLY_GPUS = "its CPU and memory are not known: all of it to its GPUs"


def node_rates(connection: Connection, window: Window, *, by_hour: bool = False) -> list[dict[str, Any]]:
    """Rows of ``models.join_views.node_costs`` with, for each of effective, billed and list, ``…_per_hour`` and
    ``…_per_gpu_hour`` (None: hours or GPUs are not known), and the effective cost as ``gpu_cost`` {type: amount}, ``cpu_cost``,
    ``memory_cost`` (they add up to it exactly; None: what the machine has is not known) with ``parts_rule``."""
    machines = read_machines(connection)
    gpus = {machine.node: dict(machine.gpus) for machine in machines if machine.gpus}
    types = _told_types(machines)
    rates = read_rates(connection, window)
    rows = node_costs(connection, window, by_hour=by_hour)
    for row in rows:
        node = Node(row["cluster"], row["node"])
        row["instance_type"] = row["instance_type"] or types.get(node, "")
        row |= _per_hour(row)
        row |= _parts(row, gpus.get(node, {}), rates, window)
    return rows


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
