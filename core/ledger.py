"""Close one quarter hour of one deployment: named lines that add up to its capacity cost to the last decimal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

from core.allocate import Allocation, EngineTotals, LineKey, PeriodWork, Share, UsageSum, Weights, Work, allocate, choose_weights
from core.capacity import Capacity, NodeService, State, TargetTime, TimeSplit, capacity_cost
from core.capacity_charges import priced_capacity
from core.gpu_use import GpuTime, GpuUse, gpu_use, with_energy
from core.money import CONTEXT, ZERO, plain, split, total
from core.node_charge import NodeCharge
from core.rates import BASIS_ORDER, ChargeBasis, Rate
from core.time_split import split_time
from core.usage import Deployment
from core.windows import Window


@dataclass(frozen=True, slots=True)
class WindowInputs:
    """All that a window's cost depends on; equal inputs give equal lines.

    ``services``: of this deployment and of others on its nodes. ``engine`` is None when no engine was seen in the window.
    ``gateway_busy_ppm``: share of the window's minutes in which usage records have tokens. ``periods``: most telling first.
    ``gpus``: what GPU exporters said of the nodes. ``currency`` names the unit when no price is known. ``charges``: what bills
    say of the deployment's machines in the window's hour; ``hour_services``: all that hold those machines at any time of it.
    """

    deployment: Deployment
    window: Window
    services: tuple[NodeService, ...]
    rates: tuple[Rate, ...]
    usage: tuple[UsageSum, ...]
    times: tuple[TargetTime, ...]
    engine: EngineTotals | None
    gateway_busy_ppm: int = 0
    periods: tuple[PeriodWork, ...] = ()
    fit: Weights | None = None
    bases: tuple[ChargeBasis, ...] = BASIS_ORDER
    currency: str = "USD"
    gpus: tuple[GpuTime, ...] = ()
    charges: tuple[NodeCharge, ...] = ()
    hour_services: tuple[NodeService, ...] = ()

    def digest(self) -> str:
        """sha256 of the inputs whatever their order; an unchanged digest needs no new version."""
        parts = [
            repr((self.deployment, self.window, self.engine, self.gateway_busy_ppm, self.periods)),
            repr((self.fit, self.bases, self.currency, "provisional")),  # the word stands in digests of earlier versions
            _listed(sorted(_text(s) for s in self.services)),
            _listed(sorted(repr(u) for u in self.usage)),
            _listed(sorted(repr(t) for t in self.times)),
            _listed(_text(r) for r in self.rates if self._matters(r)),
            *([_listed(sorted(repr(g) for g in self.gpus))] if self.gpus else []),
            *([_listed(sorted(map(_charge_text, self.charges)))] if self.charges else []),
            *([_listed(sorted(_text(s) for s in self.hour_services))] if self.charges else []),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _matters(self, rate: Rate) -> bool:
        return rate.valid_from < self.window.end and (rate.valid_to is None or rate.valid_to > self.window.start)


@lru_cache(maxsize=4096)
def _text(value: Rate | NodeService) -> str:
    """``repr``, kept: the same prices and GPUs stand in every window of a backlog."""
    return repr(value)


@lru_cache(maxsize=4096)
def _charge_text(charge: NodeCharge) -> str:
    """Without the delivery: one that repeats the money of an hour needs no new version of its windows."""
    costs = charge.billed, charge.effective, charge.list, charge.contracted, charge.hours
    return repr((
        charge.cluster, charge.node, charge.hour, charge.currency, *(None if c is None else plain(c) for c in costs),
        charge.gpus, charge.resource_id, charge.bucket, charge.is_final,
    ))  # fmt: skip


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """``cost``: this line's part of the capacity cost (usage basis: the work's own). ``allocated``: its part when idle and
    starting time is borne by the work in proportion (allocation basis). Each column adds up to the capacity cost exactly.
    ``trueup_cost``, ``trueup_allocated``: how much of each is there because bills say another price than the rates did."""

    key: LineKey
    tokens: int
    requests: int
    cost: Decimal
    allocated: Decimal
    trueup_cost: Decimal = ZERO
    trueup_allocated: Decimal = ZERO


@dataclass(frozen=True, slots=True)
class LedgerWindow:
    """One closed quarter hour. Money is None when a price or the inventory is unknown; then there are no lines and
    ``detail["reason"]`` and ``detail["unpriced"]`` say why and what.

    ``charged_cost``: the part of the capacity cost that bills say, None without one. ``estimate_cost``: what the capacity costs
    by rates alone, None where it is not billed or rates do not tell in its currency."""

    deployment: Deployment
    window: Window
    state: State
    currency: str
    capacity_cost: Decimal | None
    used_cost: Decimal | None
    utilisation_ppm: int | None
    utilisation_source: str
    weight_source: str
    price_source: str
    engine_prompt_tokens: int | None
    engine_generation_tokens: int | None
    gateway_input_tokens: int
    gateway_output_tokens: int
    lines: tuple[LedgerLine, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    charged_cost: Decimal | None = None
    estimate_cost: Decimal | None = None


def close_window(inputs: WindowInputs, digest: str = "") -> LedgerWindow:
    """Price, split and name the window: Σ lines.cost == Σ lines.allocated == capacity_cost; no capacity cost, no lines.

    ``digest`` is ``inputs.digest()`` where the caller has it already.
    """
    digest = digest or inputs.digest()
    own = [s for s in inputs.services if s.deployment == inputs.deployment and s.within(inputs.window)]
    use = gpu_use(own, inputs.services, inputs.gpus, inputs.window)
    capacity, power = with_energy(_capacity(inputs), use, inputs.rates, inputs.window)
    weights = choose_weights(inputs.fit, inputs.periods)
    if capacity.amount is None:
        return _unpriced(inputs, capacity, weights, digest)
    time, shares = _used(inputs, capacity, use, weights)
    lines = _lines(capacity.amount, time, shares.shares)
    detail = {"input_digest": digest, **_detail(shares, weights), **time.notes, **power, **capacity.notes}
    detail["running"] = _running_units(capacity.amount, time.used, shares.weight_sum, weights)
    closed = _window(inputs, capacity, weights, time, lines, detail)
    return closed if capacity.charged is None else _beside_estimate(closed, inputs, use, weights)


def _capacity(inputs: WindowInputs) -> Capacity:
    return priced_capacity(
        inputs.deployment, inputs.window, inputs.services, inputs.rates, inputs.charges, inputs.hour_services,
        bases=inputs.bases, currency=inputs.currency,
    )  # fmt: skip


def _used(
    inputs: WindowInputs, capacity: Capacity, use: Mapping[NodeService, GpuUse], weights: Weights
) -> tuple[TimeSplit, Allocation]:
    worked = inputs.engine is not None and (inputs.engine.prompt > 0 or inputs.engine.generation > 0)
    time = split_time(capacity, inputs.times, gateway_busy_ppm=inputs.gateway_busy_ppm, engine_worked=worked, gpus=use)
    return time, allocate(time.used, inputs.usage, inputs.engine, weights)


def _beside_estimate(
    closed: LedgerWindow, inputs: WindowInputs, use: Mapping[NodeService, GpuUse], weights: Weights
) -> LedgerWindow:
    """With what the same quarter hour costs by rates: decisions stay on that, and people see the difference the bill made.

    Where rates do not tell (or in another currency) the bill is the first price there is, and nothing was trued up.
    """
    estimate, _ = with_energy(
        capacity_cost(inputs.deployment, inputs.window, inputs.services, inputs.rates, bases=inputs.bases), use, inputs.rates,
        inputs.window,
    )  # fmt: skip
    if estimate.amount is None or estimate.currency != closed.currency or closed.capacity_cost is None:
        return closed
    time, shares = _used(inputs, estimate, use, weights)
    former = {line.key: line for line in _lines(estimate.amount, time, shares.shares)}
    lines = tuple(_against(line, former.pop(line.key, None)) for line in closed.lines)
    lines += tuple(LedgerLine(key, 0, 0, ZERO, ZERO, -line.cost, -line.allocated) for key, line in former.items())
    shown = {
        "estimate": plain(estimate.amount), "difference": plain(total((closed.capacity_cost, -estimate.amount))),
        "price_source": estimate.price_source,
    }  # fmt: skip
    running = _running_units(estimate.amount, time.used, shares.weight_sum, weights)
    detail = {**closed.detail, "trueup": shown, "running": running}
    return replace(closed, lines=lines, detail=detail, estimate_cost=estimate.amount)


def _against(line: LedgerLine, former: LedgerLine | None) -> LedgerLine:
    cost, allocated = (former.cost, former.allocated) if former is not None else (ZERO, ZERO)
    return replace(line, trueup_cost=total((line.cost, -cost)), trueup_allocated=total((line.allocated, -allocated)))


def _lines(capacity: Decimal, time: TimeSplit, shares: Sequence[Share]) -> tuple[LedgerLine, ...]:
    rest = [Share(LineKey("idle"), 0, 0, time.idle), Share(LineKey("starting"), 0, 0, time.starting)]
    parts = [*shares, *(r for r in rest if r.cost)]
    bearing = {s.key: abs(s.cost) for s in shares if s.cost} or {s.key: abs(s.cost) for s in parts if s.cost}
    allocated = split(capacity, bearing) if bearing else {}
    return tuple(LedgerLine(s.key, s.tokens, s.requests, s.cost, allocated.get(s.key, ZERO)) for s in parts)


def _running_units(capacity: Decimal, used: Decimal, weight_sum: Decimal, weights: Weights) -> dict[str, str] | None:
    """What the running cost between closes multiplies work with; None where this window cannot tell."""
    if weight_sum <= 0 or used <= 0:
        return None
    with localcontext(CONTEXT):
        units = {"unit": used / weight_sum, "allocated_unit": capacity / weight_sum}
    named = {"input": weights.input, "input_cached": weights.input_cached, "output": weights.output, "kv": weights.kv}
    return {name: plain(value) for name, value in {**units, **named}.items()}


def _detail(shares: Allocation, weights: Weights) -> dict[str, Any]:
    unattributed = shares.unattributed
    return {
        "weights": dict(weights.detail),
        "over_explained": dict(shares.over_explained),
        "unattributed": {
            "input": unattributed.input_uncached,
            "input_cached": unattributed.input_cached,
            "output": unattributed.output,
        },
        "missing_requests": shares.missing_requests,
        "refused_requests": shares.refused_requests,
    }


def _unpriced(inputs: WindowInputs, capacity: Capacity, weights: Weights, digest: str) -> LedgerWindow:
    work = sum((r.work for r in inputs.usage), Work())
    unpriced = {
        "requests": work.requests,
        "input": work.input_uncached,
        "input_cached": work.input_cached,
        "output": work.output,
    }
    detail = {"input_digest": digest, "reason": capacity.reason, "unpriced": unpriced, "running": None}
    return _window(inputs, capacity, weights, None, (), detail)


def _window(
    inputs: WindowInputs,
    capacity: Capacity,
    weights: Weights,
    time: TimeSplit | None,
    lines: tuple[LedgerLine, ...],
    detail: Mapping[str, Any],
) -> LedgerWindow:
    work = sum((r.work for r in inputs.usage), Work())
    return LedgerWindow(
        deployment=inputs.deployment,
        window=inputs.window,
        state=capacity.state,
        currency=capacity.currency,
        capacity_cost=capacity.amount,
        used_cost=time.used if time else None,
        utilisation_ppm=time.utilisation_ppm if time else None,
        utilisation_source=time.utilisation_source if time else "",
        weight_source=weights.source,
        price_source=capacity.price_source,
        engine_prompt_tokens=inputs.engine.prompt if inputs.engine else None,
        engine_generation_tokens=inputs.engine.generation if inputs.engine else None,
        gateway_input_tokens=work.input_uncached + work.input_cached,
        gateway_output_tokens=work.output,
        lines=lines,
        detail=detail,
        charged_cost=capacity.charged,
    )
