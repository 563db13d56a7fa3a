"""What machines cost by their bills: an hour's money shared exactly over those who held the GPUs, in place of rates.

Of each machine, hour, delivery and currency: Σ shares of all deployments and quarter hours + unassigned + rounding = the charges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache

from core.billing import WITHOUT_LIST
from core.capacity import HOUR_US, Capacity, NodeService, ServiceCost, State, capacity_cost
from core.charge_join import JOINED
from core.money import ZERO, quantize, split, total
from core.node_charge import NodeCharge
from core.rates import BASIS_ORDER, ChargeBasis, Rate
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window, floor_time

HOUR = timedelta(hours=1)
_UNASSIGNED = "~"
"""Sorts after every service, so that of equal remainders a service gets the quantum."""


@dataclass(frozen=True, slots=True)
class MoneyShare:
    """One delivery's money of one machine and hour in one currency: Σ ``held`` + ``unassigned`` + ``rounding`` == ``money``.

    ``held``: by service and quarter of the hour (0 to 3). ``rounding``: what is finer than 1e-12."""

    delivery: int
    currency: str
    source: str
    is_final: bool
    money: Decimal
    held: Mapping[tuple[NodeService, int], Decimal]
    unassigned: Decimal
    rounding: Decimal


@dataclass(frozen=True, slots=True)
class HourShare:
    """``is_billed``: the machine's own running is among the charges, so they are its price; else (a credit alone, a correction)
    nobody is given any of it. ``whole_machine``: its GPUs are not known, so those held are taken for all of them."""

    cluster: str
    node: str
    hour: datetime
    is_billed: bool
    whole_machine: bool
    shares: tuple[MoneyShare, ...]
    free_us: int | None = 0
    """GPU microseconds billed and held by nobody; None where its GPUs are not known and nobody holds any."""


def share_hour(charges: Sequence[NodeCharge], services: Iterable[NodeService], basis: ChargeBasis = "effective") -> HourShare:
    """Share the charges of one machine and hour by GPU time held; the rest of the billed GPU time is unassigned.

    ``services`` may name other machines and times. Deterministic whatever the order of either. A cost that is unknown on
    ``basis`` (list, contracted) counts as nothing: ask ``known_basis`` first.
    """
    first = charges[0]
    hour = Window(first.hour, first.hour + HOUR)
    is_billed = any(c.bucket in JOINED or c.hours > 0 for c in charges)
    held = sorted((s for s in set(services) if on_machine(s, first) and s.within(hour)), key=repr) if is_billed else []
    gpu_us = _held_us(held, hour)
    billed_us, whole_machine = _billed_us(charges)
    weights = dict(gpu_us) | {_UNASSIGNED: max(0, billed_us - sum(us for _, us in gpu_us))}
    keys = tuple((key, us) for key, us in weights.items() if us) or ((_UNASSIGNED, 1),)
    by_money: dict[tuple[int, str], list[NodeCharge]] = {}
    for charge in charges:
        by_money.setdefault((charge.delivery, charge.currency), []).append(charge)
    shares = tuple(_share(by_money[key], held, keys, basis) for key in sorted(by_money))
    free_us = None if whole_machine and not gpu_us else weights[_UNASSIGNED]
    return HourShare(first.cluster, first.node, first.hour, is_billed, whole_machine, shares, free_us if is_billed else 0)


def on_machine(service: NodeService, charge: NodeCharge) -> bool:
    return service.node == charge.node and service.deployment.cluster == charge.cluster


def known_basis(charges: Iterable[NodeCharge], bases: Sequence[ChargeBasis]) -> ChargeBasis | None:
    """The first of ``bases`` on which the bills give every charge a cost."""
    found = list(charges)
    return next((basis for basis in bases if all(getattr(c, basis) is not None or c.bucket in WITHOUT_LIST for c in found)), None)


def by_machine_hour(charges: Iterable[NodeCharge]) -> dict[tuple[str, str, datetime], tuple[NodeCharge, ...]]:
    """Charges by (cluster, node, hour), each in a fixed order."""
    found: dict[tuple[str, str, datetime], list[NodeCharge]] = {}
    for charge in charges:
        found.setdefault((charge.cluster, charge.node, charge.hour), []).append(charge)
    return {key: tuple(sorted(found[key], key=_order)) for key in sorted(found)}


def _order(charge: NodeCharge) -> tuple[int, str, str, str]:
    return charge.delivery, charge.resource_id, charge.bucket, charge.currency


def _held_us(held: Sequence[NodeService], hour: Window) -> list[tuple[str, int]]:
    """GPU microseconds by service (its place in ``held``) and quarter: keys that are alike from hour to hour."""
    quarters = list(hour.quanta(QUARTER_HOUR))
    found: list[tuple[str, int]] = []
    for n, service in enumerate(held):
        for quarter, window in enumerate(quarters):
            span = service.within(window)
            if span is not None:
                found.append((f"{n:06d}/{quarter}", service.gpu_count * (span.duration // timedelta(microseconds=1))))
    return found


def _billed_us(charges: Sequence[NodeCharge]) -> tuple[int, bool]:
    """GPU microseconds the bills name, and whether they cannot tell."""
    running = [c for c in charges if c.hours]
    if any(c.gpus is None for c in running):
        return 0, True
    return max(0, int(total(c.hours * (c.gpus or 0) for c in running) * HOUR_US)), False


def _share(
    charges: Sequence[NodeCharge], held: Sequence[NodeService], weights: tuple[tuple[str, int], ...], basis: ChargeBasis
) -> MoneyShare:
    money = total(getattr(c, basis) or ZERO for c in charges)
    whole = quantize(money)
    parts = _split(whole, weights)
    shares = {(held[int(key[:6])], int(key[7:])): amount for key, amount in parts.items() if key != _UNASSIGNED}
    return MoneyShare(
        charges[0].delivery, charges[0].currency, "; ".join(sorted({c.source for c in charges})),
        all(c.is_final for c in charges), money, shares, parts.get(_UNASSIGNED, ZERO), total((money, -whole)),
    )  # fmt: skip


@lru_cache(maxsize=65_536)
def _split(whole: Decimal, weights: tuple[tuple[str, int], ...]) -> dict[str, Decimal]:
    """Kept: an hour of a machine costs the same and is held alike hour after hour."""
    return split(whole, dict(weights))


@dataclass(frozen=True, slots=True)
class _Billed:
    """A deployment's services on machines that a bill prices in this window."""

    costs: tuple[ServiceCost, ...]
    shares: tuple[MoneyShare, ...]
    machines: tuple[HourShare, ...]
    basis: ChargeBasis


def priced_capacity(
    deployment: Deployment,
    window: Window,
    services: Sequence[NodeService],
    rates: Sequence[Rate],
    charges: Sequence[NodeCharge] = (),
    hour_services: Sequence[NodeService] = (),
    *,
    bases: Sequence[ChargeBasis] = BASIS_ORDER,
    currency: str = "USD",
) -> Capacity:
    """Capacity cost of a window of whole quarter hours: machines with a bill by their charges, the others by rates.

    ``services``: as ``capacity_cost``'s; ``hour_services``: all that hold the billed machines at any time of the window's hours.
    The state is provisional while anything is priced by rates, trued up when all is billed, final when all those deliveries are.
    Two currencies are never added: then there is no amount, and the reason names them.
    """
    own = sorted({s for s in services if s.deployment == deployment and s.within(window)}, key=repr)
    billed = _billed(own, window, charges, hour_services, bases)
    if billed is None or not billed.costs:
        return capacity_cost(deployment, window, services, rates, bases=bases, currency=currency)
    by_bill = {cost.service for cost in billed.costs}
    rest: Capacity | None = None
    if any(s not in by_bill for s in own):
        others = [s for s in services if s not in by_bill]
        rest = capacity_cost(deployment, window, others, rates, bases=bases, currency=currency)
        if rest.amount is None:
            return replace(rest, reason=f"{rest.reason} (other machines of this quarter hour are billed)")
    return _joined(billed, rest, currency)


def _billed(
    own: Sequence[NodeService], window: Window, charges: Sequence[NodeCharge], services: Sequence[NodeService],
    bases: Sequence[ChargeBasis],
) -> _Billed | None:  # fmt: skip
    """None where no bill names a machine of the deployment in this window."""
    places = {(s.deployment.cluster, s.node) for s in own if s.node}
    near = Window(floor_time(window.start, HOUR), window.end)
    mine = [c for c in charges if (c.cluster, c.node) in places and near.contains(c.hour)]
    basis = known_basis(mine, bases)
    if not mine or basis is None:
        return None
    machines = [m for group in by_machine_hour(mine).values() if (m := _hour_share(group, services, basis)).is_billed]
    found = [_of_service(service, window, machines) for service in own]
    costs = tuple(ServiceCost(s, span, cost, True) for s, span, cost, shares in found if shares)
    return _Billed(costs, tuple(share for *_, shares in found for share in shares), tuple(machines), basis)


def _hour_share(charges: tuple[NodeCharge, ...], services: Iterable[NodeService], basis: ChargeBasis) -> HourShare:
    return _kept_share(charges, tuple(s for s in services if on_machine(s, charges[0])), basis)


@lru_cache(maxsize=4_096)
def _kept_share(charges: tuple[NodeCharge, ...], services: tuple[NodeService, ...], basis: ChargeBasis) -> HourShare:
    """Kept for the other quarters of the hour."""
    return share_hour(charges, services, basis)


def _of_service(
    service: NodeService, window: Window, machines: Sequence[HourShare]
) -> tuple[NodeService, Window, Decimal, list[MoneyShare]]:
    span = service.within(window)
    assert span is not None
    mine = [m for m in machines if (m.cluster, m.node) == (service.deployment.cluster, service.node)]
    cost = total(
        amount
        for machine in mine
        for share in machine.shares
        for (holder, quarter), amount in share.held.items()
        if holder == service and window.contains(machine.hour + quarter * QUARTER_HOUR)
    )
    return service, span, cost, [share for machine in mine for share in machine.shares]


def _joined(billed: _Billed, rest: Capacity | None, currency: str) -> Capacity:
    currencies = sorted({s.currency for s in billed.shares if s.money} | ({rest.currency} if rest is not None else set()))
    if len(currencies) > 1:
        where = "billed and priced" if rest is not None else "billed"
        reason = f"machines of this quarter hour are {where} in {' and '.join(currencies)}: two currencies are never added"
        return Capacity(None, currency, None, "", reason=reason)
    sources = dict.fromkeys(f"{source} ({billed.basis})" for source in sorted({s.source for s in billed.shares}))
    charged = total(cost.cost for cost in billed.costs)
    state: State = "final" if all(s.is_final for s in billed.shares) else "trued_up"
    costs, amount, basis = list(billed.costs), charged, billed.basis
    if rest is not None and rest.amount is not None:
        sources[rest.price_source] = None
        costs, amount = sorted([*costs, *rest.services], key=lambda c: repr(c.service)), total((charged, rest.amount))
        state, basis = "provisional", rest.charge_basis or basis
    unit = currencies[0] if currencies else billed.shares[0].currency
    notes = {"whole_machine": sorted({m.node for m in billed.machines if m.whole_machine})}
    return Capacity(
        amount, unit, basis, "; ".join(sources), tuple(costs), charged=charged, state=state,
        notes={name: value for name, value in notes.items() if value},
    )  # fmt: skip
