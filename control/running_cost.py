"""What a scope has spent: the closed ledger plus the running estimate of quarter hours not yet closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import Connection

from core.allocate import Work, choose_weights
from core.bought import is_bought
from core.capacity import Capacity, NodeService, capacity_cost
from core.money import ZERO, Money
from core.rates import BASIS_ORDER, ChargeBasis, Rate
from core.running import RunningUnits, first_units, with_capacity
from core.scopes import Scope, parse_scope
from core.spend import Spend, SpendState
from core.unit_cost import CostBasis
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window, floor_time
from models.closed_spend import closed_sums, unpriced_windows
from models.ledger_inputs import read_inputs
from models.rates_repo import read_rates, read_services, services_on_nodes_of
from models.running_repo import (
    OpenWork,
    Place,
    freeze_units,
    last_units,
    open_places,
    open_since,
    open_work,
    work_so_far,
)

LOOKBACK = timedelta(hours=24)
NOT_CLOSED_YET = "bought tokens are priced when their quarter hour closes, and estimated at those prices from then on"
FROZEN_AHEAD = timedelta(minutes=45)
"""Older quarter hours get their unit rates when somebody asks."""


@dataclass(frozen=True, slots=True)
class SpendAsk:
    """What ``scope`` has spent in the quarter hours that start in ``window``. ``currency`` names a spend of nothing."""

    scope: Scope
    window: Window
    basis: CostBasis
    currency: str = "USD"

    @property
    def by_the_clock(self) -> bool:
        """Whether open time costs its whole capacity, used or not, rather than the work done in it."""
        return self.basis == "allocation" and self.scope.kind in ("deployment", "platform")


@dataclass(slots=True)
class _Running:
    """The open part of one ask: cost by currency, and what is missing from it."""

    sums: dict[str, Decimal] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)

    def add(self, currency: str, amount: Decimal) -> None:
        self.sums[currency] = self.sums.get(currency, ZERO) + amount


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
    """``spend_many`` for one scope, given as text or parsed."""
    parsed = parse_scope(scope) if isinstance(scope, str) else scope
    return spend_many(connection, [SpendAsk(parsed, window, basis, currency)], now, bases=bases)[0]


def spend_many(
    connection: Connection, asks: Sequence[SpendAsk], now: datetime, *, bases: tuple[ChargeBasis, ...] = BASIS_ORDER
) -> list[Spend]:
    """Spend of each ask up to ``now``, in their order, by a number of statements that does not grow with them.

    Usage basis: the scope's work at unit rates; of a deployment or the platform also closed unattributed work. Allocation
    basis: a deployment's or the platform's whole capacity, a tenant's share of it with idle time borne in proportion.
    Freezes the unit rates of an open quarter hour at its first need (one small insert); the caller owns the transaction.
    """
    pairs = [(ask.scope, ask.window) for ask in asks]
    closed, unpriced = closed_sums(connection, pairs), unpriced_windows(connection, pairs)
    by_clock = iter(_open_capacity(connection, [ask for ask in asks if ask.by_the_clock], now, bases))
    by_work = iter(_open_usage(connection, [ask for ask in asks if not ask.by_the_clock], now, bases))
    found: list[Spend] = []
    for ask, sums, gaps in zip(asks, closed, unpriced, strict=True):
        running = next(by_clock if ask.by_the_clock else by_work)
        known = {c: s.allocated if ask.basis == "allocation" else s.usage for c, s in sums.items()}
        missing = [f"{n} closed quarter hours of {d}: {why}" for d, n, why in gaps]
        trueups = {c: s.trueup_allocated if ask.basis == "allocation" else s.trueup_usage for c, s in sums.items()}
        spent = _sum_up(known, running.sums, [*missing, *running.lacking], ask.currency)
        trueup = trueups.get(spent.closed.currency, ZERO)
        found.append(replace(spent, trueup=Money(trueup, spent.closed.currency)) if trueup else spent)
    return found


def _sum_up(closed: dict[str, Decimal], running: dict[str, Decimal], missing: Sequence[str], currency: str) -> Spend:
    currencies = sorted({c for sums in (closed, running) for c, value in sums.items() if value})
    unit = currencies[0] if len(currencies) == 1 else currency
    parts = Money(running.get(unit, ZERO), unit), Money(closed.get(unit, ZERO), unit)
    state: SpendState = "estimate" if parts[0].amount else "provisional"
    if len(currencies) > 1:
        reason = f"spend is in {' and '.join(currencies)}: import an exchange rate or one currency's rates"
        return Spend(None, *parts, reason, state)
    reason = "; ".join(missing)
    if missing and not currencies:
        return Spend(None, *parts, f"no price: {reason}", state)
    return Spend(parts[0] + parts[1], *parts, f"lower bound, without {reason}" if missing else "", state)


def _open_usage(
    connection: Connection, asks: Sequence[SpendAsk], now: datetime, bases: tuple[ChargeBasis, ...]
) -> list[_Running]:
    """The work of each ask in open quarter hours at their unit rates."""
    if not asks:
        return []
    whole = _around(ask.window for ask in asks)
    units = open_places(connection, whole, now)
    scopes = list(dict.fromkeys(ask.scope for ask in asks))
    by_scope: dict[Scope, list[OpenWork]] = {scope: [] for scope in scopes}
    for row in sorted(open_work(connection, scopes, units), key=lambda row: row.place):
        by_scope[scopes[row.n]].append(row)
    rows = [[row for row in by_scope[ask.scope] if ask.window.contains(row.place[1])] for ask in asks]
    needed = sorted({row.place for mine in rows for row in mine if units[row.place] is None})
    lacking = freeze(connection, needed, bases)
    if len(lacking) < len(needed):
        units |= open_places(connection, whole, now)
    return [_priced(ask.basis, mine, units, lacking, now) for ask, mine in zip(asks, rows, strict=True)]


def _priced(
    basis: CostBasis, rows: Sequence[OpenWork], units: Mapping[Place, RunningUnits | None], lacking: Mapping[Place, str],
    now: datetime,
) -> _Running:  # fmt: skip
    running = _Running()
    unpriced: dict[Deployment, str] = {}
    for row in rows:
        at = units[row.place]
        if at is not None:
            running.add(at.currency, _cost(row, at, basis, now))
        elif row.place in lacking:
            unpriced[row.place[0]] = lacking[row.place]
    running.lacking = [f"open work of {d}: {why}" for d, why in unpriced.items()]
    return running


def _cost(row: OpenWork, units: RunningUnits, basis: CostBasis, now: datetime) -> Decimal:
    elapsed_us = (now - row.place[1]) // timedelta(microseconds=1)
    return units.usage(row.work, elapsed_us) if basis == "usage" else units.allocated(row.work, elapsed_us)


def freeze_open(connection: Connection, now: datetime) -> None:
    """Fix the unit rates of the open quarter hours of the last hour that have work and none yet."""
    units = open_places(connection, Window(floor_time(now, QUARTER_HOUR) - FROZEN_AHEAD, now + timedelta(microseconds=1)), now)
    without = {place for place, known in units.items() if known is None}
    freeze(connection, sorted({row.place for row in open_work(connection, [Scope("platform")], without)}))


def _around(windows: Iterable[Window]) -> Window:
    all_of_them = list(windows)
    return Window(min(w.start for w in all_of_them), max(w.end for w in all_of_them))


def freeze(connection: Connection, places: Sequence[Place], bases: tuple[ChargeBasis, ...] = BASIS_ORDER) -> dict[Place, str]:
    """Fix the unit rates of open quarter hours; returns those for which there are none, and why.

    In order: those of the deployment's last closed quarter hour that did work; the engines' busy time of the last 24 h at the
    rate card, over the work done in it; the same with the time requests took; the rate card at an assumed throughput.
    """
    if not places:
        return {}
    whole = _around(_quarter_of(place) for place in places)
    rates, services = read_rates(connection, whole), read_services(connection, whole)
    last = last_units(connection, places)
    lacking: dict[Place, str] = {}
    frozen: dict[Place, RunningUnits] = {}
    for place in places:
        deployment, window = place[0], _quarter_of(place)
        capacity = capacity_cost(deployment, window, services_on_nodes_of(deployment, services), rates, bases=bases)
        units = last.get(place)
        if units is None or (capacity.amount is not None and capacity.currency != units.currency):
            if capacity.amount is None:
                lacking[place] = NOT_CLOSED_YET if is_bought(deployment) else capacity.reason
                continue
            units = _first(connection, deployment, window, capacity, capacity.amount)
        frozen[place] = with_capacity(units, capacity.amount)
    freeze_units(connection, frozen)
    return lacking


def _quarter_of(place: Place) -> Window:
    return Window(place[1], place[1] + QUARTER_HOUR)


def _first(connection: Connection, deployment: Deployment, window: Window, capacity: Capacity, amount: Decimal) -> RunningUnits:
    targets, gpus = len(capacity.services), sum(c.service.gpu_count for c in capacity.services)
    seen = Window(window.end - LOOKBACK, window.end)
    inputs = read_inputs(connection, deployment, seen, (), ())
    weights = choose_weights(None, inputs.periods)
    busy_us = sum(t.busy_us for t in inputs.times)
    if inputs.engine is not None and busy_us and (inputs.engine.prompt or inputs.engine.generation):
        engine = inputs.engine
        work = Work(0, engine.prompt - engine.prompt_cached, engine.prompt_cached, engine.generation)
        source = f"engine busy time x rate card ({weights.source})"
        return first_units(capacity.currency, amount, targets, gpus, weights, busy_us, work, source)
    so_far = work_so_far(connection, deployment, seen)
    source = f"time requests took x rate card ({weights.source})"
    return first_units(capacity.currency, amount, targets, gpus, weights, so_far.busy_us, so_far.work, source)


def _open_capacity(
    connection: Connection, asks: Sequence[SpendAsk], now: datetime, bases: tuple[ChargeBasis, ...]
) -> list[_Running]:
    """Capacity cost of the time between a deployment's last closed quarter hour and now."""
    since = open_since(connection) if asks else {}
    spans = [_own_spans(ask, since, now) for ask in asks]
    every = [span for own in spans for span in own.values()]
    if not every:
        return [_Running() for _ in asks]
    whole = _around(every)
    rates, services = read_rates(connection, whole), read_services(connection, whole)
    costs: dict[tuple[Deployment, Window], Capacity | None] = {}
    found: list[_Running] = []
    for own in spans:
        running = _Running()
        for deployment, span in own.items():
            if (deployment, span) not in costs:
                costs[deployment, span] = _capacity(deployment, span, services, rates, bases)
            capacity = costs[deployment, span]
            if capacity is not None and capacity.amount is not None:
                running.add(capacity.currency, capacity.amount)
            elif capacity is not None:
                running.lacking.append(f"open capacity of {deployment}: {capacity.reason}")
        found.append(running)
    return found


def _own_spans(ask: SpendAsk, since: Mapping[Deployment, datetime], now: datetime) -> dict[Deployment, Window]:
    end = min(now, ask.window.end)
    starts = {d: max(s, ask.window.start) for d, s in since.items() if ask.scope.kind == "platform" or d == ask.scope.deployment}
    return {d: Window(start, end) for d, start in starts.items() if start < end}


def _capacity(
    deployment: Deployment, span: Window, services: Sequence[NodeService], rates: Sequence[Rate], bases: tuple[ChargeBasis, ...]
) -> Capacity | None:
    """None when the deployment holds no GPUs in the span."""
    near = [s for s in services_on_nodes_of(deployment, services) if s.within(span)]
    if not any(s.deployment == deployment for s in near):
        return None
    return capacity_cost(deployment, span, near, rates, bases=bases)
