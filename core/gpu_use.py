"""Which GPUs of a node served a deployment in a window, how much of their time they were active, and what energy they drew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, localcontext

from core.capacity import Capacity, NodeService
from core.money import CONTEXT, ZERO, plain, quantize
from core.rates import Rate, pue_at, rate_at, sku_key
from core.usage import Deployment
from core.windows import Window

BEFORE_RUNNING: tuple[tuple[str, str], ...] = (("engine_active", "GPU engine-active"), ("sm_active", "GPU SM activity"))
"""Shares better than "time with running > 0", best first, and how the ledger names them."""
LAST_RESORT = ("util", "GPU utilisation (last resort)")
"""Reads 33 to 40 % on a saturated vLLM, so it only stands in where nothing else was seen."""
UJ_PER_KWH = 3_600_000_000_000
ENOUGH = (4, 5)
"""A share stands for a window only when it is known for at least this part of the time it is to explain."""


@dataclass(frozen=True, slots=True)
class GpuTime:
    """One rollup row of one GPU (or MIG instance) in a window: times in µs, energy in µJ. ``pods``: ``namespace/pod`` of all that
    shared it, joined by blanks."""

    cluster: str
    node: str
    gpu: str
    mig: str
    pods: str
    engine_active_us: int = 0
    engine_active_seen_us: int = 0
    sm_active_us: int = 0
    sm_active_seen_us: int = 0
    util_us: int = 0
    util_seen_us: int = 0
    energy_uj: int = 0
    energy_seen_us: int = 0
    power_uj: int = 0
    power_seen_us: int = 0
    memory_used_mib_us: int = 0
    memory_total_mib_us: int = 0
    memory_seen_us: int = 0

    @property
    def namespaces(self) -> frozenset[str]:
        return frozenset(pod.partition("/")[0] for pod in self.pods.split())


@dataclass(frozen=True, slots=True)
class Share:
    """``active_us`` of ``seen_us``, both summed over ``units`` GPUs or MIG instances."""

    active_us: int
    seen_us: int
    units: int

    def explains(self, span_us: int) -> bool:
        part, of = ENOUGH
        return self.seen_us * of >= self.units * span_us * part

    def of(self, span_us: int) -> int:
        return min(span_us, span_us * self.active_us // self.seen_us) if self.seen_us else 0


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What the GPUs of one service did: shares by name (``engine_active``, ``sm_active``, ``util``); energy None when not
    measured throughout."""

    shares: Mapping[str, Share] = field(default_factory=dict)
    energy_uj: int | None = None


def gpu_use(
    services: Sequence[NodeService], on_nodes: Sequence[NodeService], rows: Sequence[GpuTime], window: Window
) -> dict[NodeService, GpuUse]:
    """The use of each of a deployment's ``services`` whose GPUs can be told among ``rows`` (``gpus_of``); others are left out.

    MIG instances count as units, without energy.
    """
    found: dict[NodeService, GpuUse] = {}
    for service in services:
        mine = gpus_of(service.deployment, service.node, on_nodes, rows)
        units = {(row.gpu, row.mig) for row in mine}
        if units:
            found[service] = GpuUse(_shares(mine, len(units)), _energy(mine, service.gpu_count, len(units), window))
    return found


def gpus_of(deployment: Deployment, node: str, on_nodes: Sequence[NodeService], rows: Sequence[GpuTime]) -> list[GpuTime]:
    """The rows of the GPUs that served a deployment on a node; none where that cannot be told.

    A GPU is a deployment's when a pod of its namespace holds it, or, where the exporter names no pods at all, when no other
    deployment is in service on the node (``on_nodes``: every service there). As many GPUs (or MIG instances) as are paid for must
    be found, else nothing is said of any: a share of the wrong GPUs is worse than none.
    """
    near = [s for s in on_nodes if s.node == node and s.deployment.cluster == deployment.cluster]
    here = [row for row in rows if (row.cluster, row.node) == (deployment.cluster, node)]
    others = {s.deployment for s in near} - {deployment}
    if any(row.pods for row in here):
        if any(other.namespace == deployment.namespace for other in others):
            return []
        here = [row for row in here if deployment.namespace in row.namespaces]
    elif others:
        return []
    units = {(row.gpu, row.mig) for row in here if row.mig} or {(row.gpu, "") for row in here}
    if len(units) != sum(s.gpu_count for s in near if s.deployment == deployment):
        return []
    return [row for row in here if (row.gpu, row.mig) in units]


def _shares(rows: Sequence[GpuTime], units: int) -> dict[str, Share]:
    names = [name for name, _ in (*BEFORE_RUNNING, LAST_RESORT)]
    sums = {
        name: (sum(getattr(r, f"{name}_us") for r in rows), sum(getattr(r, f"{name}_seen_us") for r in rows)) for name in names
    }
    return {name: Share(active, seen, units) for name, (active, seen) in sums.items() if seen}


def _energy(rows: Sequence[GpuTime], count: int, paid: int, window: Window) -> int | None:
    """This service's part of what its deployment's GPUs on the node drew: by their counters, else by sampled power."""
    span_us = window.duration.seconds * 1_000_000
    part, of = ENOUGH
    for total, seen in (("energy_uj", "energy_seen_us"), ("power_uj", "power_seen_us")):
        if sum(getattr(row, seen) for row in rows) * of >= paid * span_us * part:
            return int(sum(getattr(row, total) for row in rows)) * count // paid
    return None


GPU_POWER = "GPUs' own energy; what the rest of a node draws is not in it"


@dataclass(frozen=True, slots=True)
class _Power:
    """What a kWh at a service's GPUs costs in its own rack: ``price`` of the meter times ``pue``. ``reason``: why that is not
    known; neither: not an own rack."""

    price: Rate | None = None
    pue: Rate | None = None
    reason: str = ""

    @property
    def sources(self) -> list[str]:
        tariff = [f"{self.price.source} ({self.price.charge_basis})"] if self.price else []
        return [*tariff, *([f"PUE: {self.pue.source}"] if self.pue else [])]

    @property
    def factor(self) -> Decimal:
        return self.price.price.amount * (self.pue.price.amount if self.pue else 1) if self.price else ZERO


def with_energy(
    capacity: Capacity, use: Mapping[NodeService, GpuUse], rates: Sequence[Rate], window: Window
) -> tuple[Capacity, dict[str, object]]:
    """Add measured kWh × tariff × PUE to the capacity cost of services in own racks, and say so.

    A rack is own where a ``kwh`` or ``pue`` rate bears the node's or the cluster's name at the window's start. Its tariff must
    be known for that hour on the capacity's charge basis and in its currency: else the cost is unknown, with the reason. No PUE
    counts as 1: the tariff may hold it. Energy that was not measured is named and not guessed.
    """
    if capacity.amount is None or capacity.charge_basis is None:
        return capacity, {}
    # What a machine's bill says holds its energy.
    powers = [_Power() if i.is_billed else _power(i.service, capacity, rates, window.start) for i in capacity.services]
    reasons = [power.reason for power in powers if power.reason]
    if reasons:
        unknown = replace(capacity, amount=None, charge_basis=None, price_source="", services=(), reason=reasons[0])
        return unknown, {}
    if not any(power.price for power in powers):
        return capacity, {}
    costs, kwh, unmeasured = [], ZERO, []
    for item, power in zip(capacity.services, powers, strict=True):
        energy_uj = use[item.service].energy_uj if item.service in use else None
        if power.price is None or energy_uj is None:
            unmeasured += [item.service.node] if power.price is not None else []
            costs.append(item)
            continue
        with localcontext(CONTEXT):
            drawn = Decimal(energy_uj) / UJ_PER_KWH
            kwh += drawn
            costs.append(replace(item, cost=item.cost + quantize(drawn * power.factor)))
    with localcontext(CONTEXT):
        amount = sum((item.cost for item in costs), ZERO)
        note: dict[str, object] = {"kwh": plain(kwh), "cost": plain(amount - capacity.amount)}
    note |= {"not_measured_on": sorted(set(unmeasured)), "measured": GPU_POWER}
    sources = dict.fromkeys([capacity.price_source, *(text for power in powers if power.price for text in power.sources)])
    note |= {"pue": sorted({plain(p.pue.price.amount) if p.pue else "none declared" for p in powers if p.price})}
    return replace(capacity, amount=amount, services=tuple(costs), price_source="; ".join(sources)), {"power": note}


def _power(service: NodeService, capacity: Capacity, rates: Sequence[Rate], at: datetime) -> _Power:
    names = {sku_key(name): name for name in (service.node, service.deployment.cluster) if name}
    near = [r for r in rates if r.kind in ("kwh", "pue") and sku_key(r.sku) in names and r.in_force(at)]
    if not near:
        return _Power()
    pue = next((found for name in names.values() if (found := pue_at(near, name, at)) is not None), None)
    assert capacity.charge_basis is not None
    tariffs = (rate_at(near, "kwh", name, at, capacity.charge_basis).rate for name in names.values())
    price = next((rate for rate in tariffs if rate is not None), None)
    where = f"the power of {service.node or service.deployment.cluster}"
    if price is None:
        return _Power(reason=f"no {capacity.charge_basis} tariff (kwh) for {where} at {at.isoformat()}")
    if price.price.currency != capacity.currency:
        return _Power(reason=f"the tariff for {where} is in {price.price.currency}, the GPU-hours are in {capacity.currency}")
    return _Power(price, pue)
