"""What the reserved GPUs of a deployment cost in a window, and how much of their time served, idled or had no engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal, localcontext

from core.money import CONTEXT, ZERO, quantize, split
from core.rates import BASIS_ORDER, ChargeBasis, PricedSpan, Rate, priced_spans
from core.usage import Deployment
from core.windows import Window

HOUR_US = 3_600_000_000


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


@dataclass(frozen=True, slots=True)
class Capacity:
    """Cost of each service in the window. ``amount`` is None, with the reason, when any price or the inventory is unknown."""

    amount: Decimal | None
    currency: str
    charge_basis: ChargeBasis | None
    price_source: str
    services: tuple[ServiceCost, ...] = ()
    reason: str = ""


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


def split_time(capacity: Capacity, times: Sequence[TargetTime], *, gateway_busy_ppm: int, engine_worked: bool) -> TimeSplit:
    """Share each service's cost by what its time was (see the module's ADR 0003 for the order of sources).

    Time with no engine seen is *starting/unserved*. Time in a scrape gap is taken at the utilisation of the time observed in
    the same window. With no observed time at all, and yet usage records, the share of minutes in which the gateway saw tokens
    stands in, named as the source. With neither, GPUs were reserved and no engine is known to have run: all of it is starting.
    """
    by_service, unmatched = _pair(capacity.services, times)
    observed = any(t.observed_us for t in by_service.values() if t)
    blind_ppm = gateway_busy_ppm or (1_000_000 if engine_worked else 0)
    used = idle = starting = ZERO
    busy_gpu_us = served_gpu_us = 0
    for item in capacity.services:
        span_us = _us(item.span.duration)
        served_us, busy_us = _served(by_service[item.service], span_us, observed, blind_ppm)
        parts = split(item.cost, {"busy": busy_us, "idle": served_us - busy_us, "starting": span_us - served_us})
        used, idle, starting = used + parts["busy"], idle + parts["idle"], starting + parts["starting"]
        busy_gpu_us += busy_us * item.service.gpu_count
        served_gpu_us += served_us * item.service.gpu_count
    ppm = busy_gpu_us * 1_000_000 // served_gpu_us if served_gpu_us else None
    notes: dict[str, object] = {"unmatched_targets": unmatched} if unmatched else {}
    gap_us = sum(t.gap_us for t in times)
    if gap_us:
        notes["gap_us"] = gap_us
    return TimeSplit(used, idle, starting, ppm, _source(observed, gateway_busy_ppm, engine_worked), notes)


def _served(time: TargetTime | None, span_us: int, observed: bool, blind_ppm: int) -> tuple[int, int]:
    """(served, busy) microseconds of one service."""
    if time is not None and time.observed_us:
        served = min(span_us, time.observed_us + time.gap_us)
        return served, min(served, served * time.busy_us // time.observed_us)
    if observed or not blind_ppm:
        return 0, 0
    return span_us, span_us * blind_ppm // 1_000_000


def _source(observed: bool, gateway_busy_ppm: int, engine_worked: bool) -> str:
    if observed:
        return "share of time with running > 0"
    if gateway_busy_ppm:
        return "minutes with gateway tokens (no engine observation)"
    if engine_worked:
        return "assumed 1 (engine counters moved in a scrape gap)"
    return "none: no engine seen"


def _pair(costs: Sequence[ServiceCost], times: Sequence[TargetTime]) -> tuple[dict[NodeService, TargetTime | None], list[str]]:
    """Engine time by service: of the same target; services left without share evenly the time of targets the inventory does not
    name (the same engines under another address), and those targets are reported."""
    by_target = {t.target: t for t in times}
    held_us: dict[str, int] = {}
    for cost in costs:
        held_us[cost.service.target] = held_us.get(cost.service.target, 0) + _us(cost.span.duration)
    known = held_us.keys()
    paired: dict[NodeService, TargetTime | None] = {
        c.service: _part(by_target.get(c.service.target), _us(c.span.duration), held_us[c.service.target]) for c in costs
    }
    lone = [t for t in sorted(times, key=lambda t: t.target) if t.target not in known]
    bare = [c.service for c in costs if paired[c.service] is None]
    if lone and bare:
        count = max(len(lone), len(bare))
        observed, busy, gap = (sum(getattr(t, name) for t in lone) // count for name in ("observed_us", "busy_us", "gap_us"))
        paired.update((service, TargetTime(service.target, observed, busy, gap)) for service in bare)
    return paired, [t.target for t in lone]


def _part(time: TargetTime | None, span_us: int, held_us: int) -> TargetTime | None:
    """A target declared in several spans of one window has its time shared over them."""
    if time is None or span_us == held_us:
        return time
    observed, busy, gap = (value * span_us // held_us for value in (time.observed_us, time.busy_us, time.gap_us))
    return TargetTime(time.target, observed, busy, gap)


def _us(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
