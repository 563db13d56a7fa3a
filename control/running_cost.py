"""What a scope has spent: the closed ledger plus the running estimate of quarter hours not yet closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from sqlalchemy import Connection

from core.allocate import Work, choose_weights
from core.capacity import capacity_cost
from core.money import ZERO, Money
from core.rates import BASIS_ORDER, ChargeBasis
from core.running import RunningUnits, first_units, with_capacity
from core.scopes import Scope, parse_scope
from core.unit_cost import CostBasis
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window
from models.ledger_inputs import read_inputs
from models.rates_repo import read_rates, read_services, services_on_nodes_of
from models.running_repo import (
    OpenWork,
    closed_sums,
    freeze_units,
    last_units,
    open_since,
    open_work,
    unpriced_windows,
    work_so_far,
)

LOOKBACK = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Spend:
    """``amount`` = closed + running; None when nothing of it has a price or currencies mix. A ``reason`` beside an amount names
    what is missing from it: the amount is then a lower bound. ``state`` is estimate while anything of it is running."""

    amount: Money | None
    running: Money
    closed: Money
    reason: str = ""
    state: Literal["estimate", "provisional"] = "provisional"


def spend(
    connection: Connection,
    scope: str | Scope,
    window: Window,
    basis: CostBasis,
    now: datetime,
    *,
    currency: str = "USD",
    bases: tuple[ChargeBasis, ...] = BASIS_ORDER,
) -> Spend:
    """Spend of a scope in the quarter hours that start in ``window``, up to ``now``. ``currency`` names a spend of nothing.

    Usage basis: the scope's work at unit rates; of a deployment or the platform also closed unattributed work. Allocation
    basis: a deployment's or the platform's whole capacity, a tenant's share of it with idle time borne in proportion.
    Freezes the unit rates of an open quarter hour at its first need (one small insert); the caller owns the transaction.
    """
    parsed = parse_scope(scope) if isinstance(scope, str) else scope
    closed = closed_sums(connection, parsed, window, basis)
    missing = [f"{n} closed quarter hours of {d}: {why}" for d, n, why in unpriced_windows(connection, parsed, window)]
    if basis == "allocation" and parsed.kind in ("deployment", "platform"):
        running, lacking = _open_capacity(connection, parsed, window, now, bases)
    else:
        running, lacking = _open_usage(connection, parsed, window, basis, now, bases)
    return _sum_up(closed, running, [*missing, *lacking], currency)


def _sum_up(closed: dict[str, Decimal], running: dict[str, Decimal], missing: Sequence[str], currency: str) -> Spend:
    currencies = sorted({c for sums in (closed, running) for c, value in sums.items() if value})
    unit = currencies[0] if len(currencies) == 1 else currency
    parts = Money(running.get(unit, ZERO), unit), Money(closed.get(unit, ZERO), unit)
    state: Literal["estimate", "provisional"] = "estimate" if parts[0].amount else "provisional"
    if len(currencies) > 1:
        reason = f"spend is in {' and '.join(currencies)}: import an exchange rate or one currency's rates"
        return Spend(None, *parts, reason, state)
    reason = "; ".join(missing)
    if missing and not currencies:
        return Spend(None, *parts, f"no price: {reason}", state)
    return Spend(parts[0] + parts[1], *parts, f"lower bound, without {reason}" if missing else "", state)


def _open_usage(
    connection: Connection, scope: Scope, window: Window, basis: CostBasis, now: datetime, bases: tuple[ChargeBasis, ...]
) -> tuple[dict[str, Decimal], list[str]]:
    rows = open_work(connection, scope, window, now)
    lacking: dict[Deployment, str] = {}
    for row in rows:
        if row.units is None:
            reason = freeze(connection, row.deployment, row.start, now, bases)
            if reason:
                lacking[row.deployment] = reason
    if any(row.units is None for row in rows):
        rows = open_work(connection, scope, window, now)
    sums: dict[str, Decimal] = {}
    for row in rows:
        if row.units is not None:
            sums[row.units.currency] = sums.get(row.units.currency, ZERO) + _running(row, row.units, basis, now)
    return sums, [f"open work of {d}: {why}" for d, why in sorted(lacking.items())]


def _running(row: OpenWork, units: RunningUnits, basis: CostBasis, now: datetime) -> Decimal:
    if basis == "usage":
        return units.usage(row.work)
    return units.allocated(row.work, (now - row.start) // timedelta(microseconds=1))


def freeze(
    connection: Connection, deployment: Deployment, start: datetime, now: datetime, bases: tuple[ChargeBasis, ...] = BASIS_ORDER
) -> str:
    """Fix the unit rates of an open quarter hour; returns '' or why there are none.

    In order: those of the deployment's last closed quarter hour that did work; the engines' busy time of the last 24 h at the
    rate card, over the work done in it; the same with the time requests took; the rate card at an assumed throughput.
    """
    window = Window(start, start + QUARTER_HOUR)
    rates, services = read_rates(connection, window), read_services(connection, window)
    capacity = capacity_cost(deployment, window, services_on_nodes_of(deployment, services), rates, bases=bases)
    units = last_units(connection, deployment, start)
    if units is None or (capacity.amount is not None and capacity.currency != units.currency):
        if capacity.amount is None:
            return capacity.reason
        gpus = sum(c.service.gpu_count for c in capacity.services)
        units = _first(connection, deployment, window, now, capacity.currency, capacity.amount, len(capacity.services), gpus)
    freeze_units(connection, deployment, start, with_capacity(units, capacity.amount))
    return ""


def _first(
    connection: Connection, deployment: Deployment, window: Window, now: datetime, currency: str, capacity: Decimal,
    targets: int, gpus: int,
) -> RunningUnits:  # fmt: skip
    seen = Window(window.end - LOOKBACK, window.end)
    inputs = read_inputs(connection, deployment, seen, (), ())
    weights = choose_weights(None, inputs.periods)
    busy_us = sum(t.busy_us for t in inputs.times)
    if inputs.engine is not None and busy_us and (inputs.engine.prompt or inputs.engine.generation):
        engine = inputs.engine
        work = Work(0, engine.prompt - engine.prompt_cached, engine.prompt_cached, engine.generation)
        return first_units(
            currency, capacity, targets, gpus, weights, busy_us, work, f"engine busy time x rate card ({weights.source})"
        )
    so_far = work_so_far(connection, deployment, seen)
    source = f"time requests took x rate card ({weights.source})"
    return first_units(currency, capacity, targets, gpus, weights, so_far.busy_us, so_far.work, source)


def _open_capacity(
    connection: Connection, scope: Scope, window: Window, now: datetime, bases: tuple[ChargeBasis, ...]
) -> tuple[dict[str, Decimal], list[str]]:
    """Capacity cost of the time between a deployment's last closed quarter hour and now."""
    sums: dict[str, Decimal] = {}
    lacking: list[str] = []
    end = min(now, window.end)
    spans = {d: Window(start, end) for d, s in open_since(connection).items() if (start := max(s, window.start)) < end}
    own = {d: span for d, span in spans.items() if scope.kind == "platform" or d == scope.deployment}
    if not own:
        return sums, lacking
    whole = Window(min(span.start for span in own.values()), end)
    rates, services = read_rates(connection, whole), read_services(connection, whole)
    for deployment, span in own.items():
        near = [s for s in services_on_nodes_of(deployment, services) if s.within(span)]
        if not any(s.deployment == deployment for s in near):
            continue
        capacity = capacity_cost(deployment, span, near, rates, bases=bases)
        if capacity.amount is None:
            lacking.append(f"open capacity of {deployment}: {capacity.reason}")
        else:
            sums[capacity.currency] = sums.get(capacity.currency, ZERO) + capacity.amount
    return sums, lacking
