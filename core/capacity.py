"""What the reserved GPUs of a deployment cost in a window, and how much of their time served, idled or had no engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Literal

from core.money import CONTEXT, ZERO, quantize, split
from core.rates import BASIS_ORDER, ChargeBasis, PricedSpan, Rate, priced_spans
from core.usage import Deployment
from core.windows import Window

HOUR_US = 3_600_000_000
State = Literal["provisional", "trued_up", "final"]
"""Something priced by rates; all priced by bills; all of those bills' invoices issued."""


@dataclass(frozen=True, slots=True)
class NodeService:
    """``gpu_count`` GPUs of ``gpu_type`` on ``node`` are reserved for ``deployment`` in ``[since, until)`` (None: still)."""

    deployment: Deployment
    target: str
    node: str
    gpu_type: str
    gpu_count: int
    since: datetime
    until: datetime | None = None

    def within(self, window: Window) -> Window | None:
        start = max(self.since, window.start)
        end = window.end if self.until is None else min(self.until, window.end)
        return Window(start, end) if start < end else None


@dataclass(frozen=True, slots=True)
class TargetTime:
    """Engine time of one scrape target in a window, averaged over its engines (they share its GPUs). Microseconds.

    ``observed_us`` was sampled, ``busy_us`` of it had a request running; ``gap_us`` lies between samples too far apart to tell.
    """

    target: str
    observed_us: int
    busy_us: int
    gap_us: int


@dataclass(frozen=True, slots=True)
class ServiceCost:
    service: NodeService
    span: Window
    cost: Decimal
    is_billed: bool = False
    """By the machine's own charges, which hold its energy and its node."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Cost of each service in the window. ``amount`` is None, with the reason, when any price or the inventory is unknown."""

    amount: Decimal | None
    currency: str
    charge_basis: ChargeBasis | None
    price_source: str
    services: tuple[ServiceCost, ...] = ()
    reason: str = ""
    charged: Decimal | None = None
    """The part of ``amount`` that bills say; None: no machine of the window is billed."""
    state: State = "provisional"
    notes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Capacity cost by what the time was: used + idle + starting == capacity, exactly."""

    used: Decimal
    idle: Decimal
    starting: Decimal
    utilisation_ppm: int | None
    utilisation_source: str
    notes: dict[str, object] = field(default_factory=dict)


def capacity_cost(
    deployment: Deployment,
    window: Window,
    services: Sequence[NodeService],
    rates: Sequence[Rate],
    *,
    bases: Sequence[ChargeBasis] = BASIS_ORDER,
    currency: str = "USD",
) -> Capacity:
    """Σ GPUs × GPU-hour rate × hours + the node's own share, under the first charge basis in which every price is known.

    ``services`` holds those of this deployment and of others on the same nodes (they share a ``node_hour`` rate by GPU time).
    A GPU-hour made from an instance's price holds the node already: then there is no ``node_hour`` rate and no node share.
    A price change inside the window is integrated exactly; the result is quantised once per service.
    """
    own = sorted((s for s in services if s.deployment == deployment and s.within(window)), key=repr)
    if not own:
        return Capacity(
            None, currency, None, "", reason="no GPU inventory in this window: declare the target's GPU type and count"
        )
    reasons: list[str] = []
    for basis in bases:
        found = _priced(own, window, services, rates, basis)
        if isinstance(found, Capacity):
            return found
        reasons.append(found)
    return Capacity(None, currency, None, "", reason=reasons[-1] if reasons else "no charge basis asked for")


def _priced(
    own: Sequence[NodeService], window: Window, services: Sequence[NodeService], rates: Sequence[Rate], basis: ChargeBasis
) -> Capacity | str:
    costs: list[ServiceCost] = []
    used: list[Rate] = []
    for service in own:
        span = service.within(window)
        assert span is not None
        spans, reason = priced_spans(rates, "gpu_hour", service.gpu_type, span, basis)
        if reason:
            return reason
        node_cost, node_rates = _node_share(service, window, services, rates, basis)
        costs.append(ServiceCost(service, span, _integrate(spans, service.gpu_count) + node_cost))
        used += [s.rate for s in spans] + node_rates
    currencies = sorted({r.price.currency for r in used})
    if len(currencies) > 1:
        return f"rates are in {' and '.join(currencies)}: import an exchange rate or one currency's rates"
    with localcontext(CONTEXT):
        amount = sum((c.cost for c in costs), ZERO)
    sources = "; ".join(dict.fromkeys(f"{r.source} ({r.charge_basis})" for r in used))
    return Capacity(amount, currencies[0], basis, sources, tuple(costs))


def _integrate(spans: Sequence[PricedSpan], units: int) -> Decimal:
    with localcontext(CONTEXT):
        unit_us = sum((s.rate.price.amount * _us(s.span.duration) for s in spans), ZERO)
        return quantize(unit_us * units / HOUR_US)


def _node_share(
    service: NodeService, window: Window, services: Sequence[NodeService], rates: Sequence[Rate], basis: ChargeBasis
) -> tuple[Decimal, list[Rate]]:
    """This service's part of its node's ``node_hour`` cost while any service holds the node, shared by GPU time."""
    on_node = sorted((s for s in set(services) if s.node == service.node and s.within(window)), key=repr)
    held = [span for s in on_node if (span := s.within(window))]
    cost, used = ZERO, []
    for span in _union(held):
        spans, reason = priced_spans(rates, "node_hour", service.node, span, basis)
        if reason:
            continue
        cost += _integrate(spans, 1)
        used += [s.rate for s in spans]
    if not cost:
        return ZERO, used
    gpu_us = {s: s.gpu_count * _us(span.duration) for s in on_node if (span := s.within(window))}
    return split(cost, gpu_us)[service], used


def _union(spans: Sequence[Window]) -> list[Window]:
    merged: list[Window] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Window(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _us(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
