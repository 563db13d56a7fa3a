"""From budgets to signals: what each capped scope has spent, folded into its breaker. Level-triggered and restartable.

One pass reads everything first and folds on a snapshot; only a breaker that would change is locked and folded again, so a quiet
pass writes nothing. Spend unknown, or in another currency than the cap, is NO_DATA: the breaker holds its state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import Connection, Engine

from control.breakers import fold
from control.running_cost import spend
from core.breaker import step
from core.breaker_values import Breaker, BreakerPolicy, CapReading, CapSignal
from core.budgets import Budget, CapIncrease, effective_cap, share
from core.money import ZERO, Money
from core.scopes import Scope, parse_scope
from models.breaker_repo import ensure_breaker, list_breakers
from models.database import transaction
from models.decide_repo import list_budgets, list_cap_increases
from models.scope_usage import metered_since, refused_share_elsewhere, usage_catching_up

log = logging.getLogger("tokenfuse.control")
OPEN_WINDOWS = timedelta(minutes=30)
"""A quarter hour plus the grace before it closes: usage older than this is late, and late rows only alert."""
CHUNK = 10
"""Scopes measured in one transaction: few, so that a trip is committed and published while the rest is measured."""
BLAST_WINDOW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Reading:
    """Spend of one budget's running period; ``reason`` says what is missing from it."""

    spend: Money | None
    reason: str = ""


SpendSource = Callable[[Connection, Budget, datetime], Reading]


@dataclass(frozen=True, slots=True)
class WatchReport:
    """Share of the cap by scope looked at (0 where unknown; an open breaker's scope counts as 1), breakers that changed (state
    after), scopes whose figures could not be read with the reason, and how many scopes have a capped budget."""

    shares: dict[str, Decimal] = field(default_factory=dict)
    scopes: int = 0
    changed: tuple[Breaker, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)


def read_spend(connection: Connection, budget: Budget, now: datetime) -> Reading:
    """The running cost of the budget's scope in its running period, on its basis."""
    found = spend(connection, budget.scope, budget.window(now), budget.cost_basis, now, currency=budget.amount.currency)
    if found.amount is not None and found.amount.currency != budget.amount.currency:
        return Reading(None, f"spend is in {found.amount.currency}, the budget in {budget.amount.currency}: no exchange rate")
    return Reading(found.amount, found.reason)


def budget_spend(connection: Connection, budget: Budget, now: datetime) -> Money | None:
    """Spend of a budget's running period, for ``control.breakers.reset``."""
    return read_spend(connection, budget, now).spend


@dataclass(frozen=True, slots=True)
class _Capped:
    budget: Budget
    increases: Sequence[CapIncrease]


@dataclass(frozen=True, slots=True)
class _Seen:
    share: Decimal
    changed: Breaker | None = None


def watch(
    engine: Engine,
    now: datetime,
    policy: BreakerPolicy,
    source: SpendSource = read_spend,
    pick: Callable[[Iterable[str]], Sequence[str]] = sorted,
    on_change: Callable[[], object] = lambda: None,
) -> WatchReport:
    """Measure capped budgets and fold the results. One scope's failure is reported and does not stop the others.

    ``pick`` chooses which scopes, and in which order; all of them unless said otherwise. ``on_change`` is called as soon as a
    breaker's change is committed, while the rest is still to be measured.
    """
    with transaction(engine) as connection:
        scopes, breakers = _situation(connection, now, policy)
        catching_up = usage_catching_up(connection)
    changed: list[Breaker] = []
    failed: dict[str, str] = {}
    shares: dict[str, Decimal] = {}

    def fold_all(names: Sequence[str]) -> list[Breaker]:
        found: list[Breaker] = []
        with transaction(engine) as connection:
            for name in names:
                seen = _one(connection, scopes[name], breakers[name], now, policy, source, catching_up)
                shares[name] = seen.share
                found += [seen.changed] if seen.changed is not None else []
        return found

    for chunk in _chunks(pick(scopes)):
        before = len(changed)
        try:
            changed += fold_all(chunk)
        except Exception:
            log.warning("one of %d budgets could not be watched; trying each alone", len(chunk))
            changed += _each_alone(fold_all, chunk, failed)
        if len(changed) > before:
            on_change()
    return WatchReport(shares, len(scopes), tuple(changed), failed)


def _each_alone(
    fold_all: Callable[[Sequence[str]], list[Breaker]], names: Sequence[str], failed: dict[str, str]
) -> list[Breaker]:
    changed: list[Breaker] = []
    for name in names:
        try:
            changed += fold_all([name])
        except Exception as error:
            log.exception("budget of %s could not be watched", name)
            failed[name] = f"{type(error).__name__}: {error}"
    return changed


def _chunks(names: Sequence[str], size: int = CHUNK) -> list[Sequence[str]]:
    return [names[i : i + size] for i in range(0, len(names), size)]


def _situation(
    connection: Connection, now: datetime, policy: BreakerPolicy
) -> tuple[dict[str, list[_Capped]], dict[str, Breaker]]:
    increases = list_cap_increases(connection, now)
    scopes: dict[str, list[_Capped]] = {}
    for stored in list_budgets(connection):
        budget, name = stored.budget, str(stored.budget.scope)
        if budget.cap is not None:
            mine = [i.increase for i in increases if (i.scope, i.period) == (name, budget.period)]
            scopes.setdefault(name, []).append(_Capped(budget, mine))
    breakers = {b.scope: b for b in list_breakers(connection)}
    missing = [name for name in scopes if name not in breakers]
    for name in missing:
        ensure_breaker(connection, name, now, now + policy.quiet_start)
    if missing:
        breakers = {b.scope: b for b in list_breakers(connection)}
    return scopes, breakers


def _one(
    connection: Connection, capped: Sequence[_Capped], breaker: Breaker, now: datetime, policy: BreakerPolicy,
    source: SpendSource, catching_up: bool,
) -> _Seen:  # fmt: skip
    if breaker.phase == "open" and breaker.trip is not None and now < breaker.trip.period_end:
        return _Seen(Decimal(1))  # nothing measured can close it before the period's end
    readings = tuple(_reading(connection, c, now, source) for c in capped)
    signal = _signal(connection, parse_scope(breaker.scope), breaker, readings, now, policy, catching_up)
    used = max(_shares(readings), default=ZERO)
    after, _ = step(policy, breaker, signal, now)
    if after == breaker:
        return _Seen(used)
    folded = fold(connection, breaker.id, signal, now, policy)
    return _Seen(used, folded if folded != breaker else None)


def _shares(readings: Iterable[CapReading]) -> list[Decimal]:
    return [used for r in readings if (used := share(r.spend, r.cap).value) is not None]


def _reading(connection: Connection, capped: _Capped, now: datetime, source: SpendSource) -> CapReading:
    budget = capped.budget
    cap = effective_cap(budget.cap, capped.increases, now)
    assert cap is not None
    found = source(connection, budget, now)
    return CapReading(budget.period, budget.window(now).end, found.spend, cap, found.reason)


def _signal(
    connection: Connection, scope: Scope, breaker: Breaker, readings: tuple[CapReading, ...], now: datetime,
    policy: BreakerPolicy, catching_up: bool,
) -> CapSignal:  # fmt: skip
    """The two questions that cost a scan are asked only of a scope about to trip."""
    about_to_trip = breaker.phase != "open" and any(used >= policy.trip_share for used in _shares(readings))
    if not about_to_trip:
        return CapSignal(readings, False, catching_up)
    metered = metered_since(connection, scope, now - OPEN_WINDOWS)
    refused = refused_share_elsewhere(connection, scope, now - BLAST_WINDOW) if breaker.enforced else None
    return CapSignal(readings, metered, catching_up, refused)
