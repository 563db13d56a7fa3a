"""What each budget's scope has spent, folded into its breaker. Level-triggered and restartable.

One pass measures all capped budgets together and folds on a snapshot; only a breaker that would change is locked and folded
again, so a quiet pass writes nothing. Spend unknown, or in another currency than the cap, is NO_DATA: the breaker holds its
state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from control.breakers import fold
from control.running_cost import SpendAsk, spend_many
from core.breaker import step
from core.breaker_values import Breaker, BreakerPolicy, CapReading, CapSignal
from core.budgets import Budget, effective_cap, share
from core.money import Money
from core.scopes import parse_scope
from core.spend import Spend
from models.breaker_repo import ensure_breaker, list_breakers
from models.database import transaction
from models.decide_repo import list_budgets, list_cap_increases
from models.quality_repo import usage_catching_up
from models.scope_usage import metered_since, refused_share_elsewhere

log = logging.getLogger("tokenfuse.control")
OPEN_WINDOWS = timedelta(minutes=30)
"""A quarter hour plus the grace before it closes: usage older than this is late, and late rows only alert."""
BLAST_WINDOW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Reading:
    """Spend of one budget's running period; ``reason`` says what is missing from it."""

    spend: Money | None
    reason: str = ""


SpendSource = Callable[[Connection, Sequence[Budget], datetime], list[Reading]]
"""Readings of these budgets, in their order."""


@dataclass(frozen=True, slots=True)
class WatchReport:
    """How many scopes have a capped budget, breakers that changed (state after), scopes that could not be read or folded with
    the reason."""

    scopes: int = 0
    changed: tuple[Breaker, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)


def read_spends(connection: Connection, budgets: Sequence[Budget], now: datetime) -> list[Reading]:
    """The running cost of each budget's scope in its running period, on its basis, at provisional rates: a bill that arrives
    moves no tier."""
    asks = [SpendAsk(b.scope, b.window(now), b.cost_basis, b.amount.currency) for b in budgets]
    return [_reading(budget, found) for budget, found in zip(budgets, spend_many(connection, asks, now), strict=True)]


def _reading(budget: Budget, found: Spend) -> Reading:
    if found.amount is not None and found.amount.currency != budget.amount.currency:
        return Reading(None, f"spend is in {found.amount.currency}, the budget in {budget.amount.currency}: no exchange rate")
    return Reading(found.decision, found.reason)


def read_spend(connection: Connection, budget: Budget, now: datetime) -> Reading:
    """``read_spends`` for one budget."""
    return read_spends(connection, [budget], now)[0]


def budget_spend(connection: Connection, budget: Budget, now: datetime) -> Money | None:
    """Spend of a budget's running period, for ``control.breakers.reset``."""
    return read_spend(connection, budget, now).spend


@dataclass(frozen=True, slots=True)
class _Watched:
    """A scope with its breaker, its capped budgets and their caps now."""

    breaker: Breaker
    budgets: tuple[Budget, ...]
    caps: tuple[Money, ...]


def watch(engine: Engine, now: datetime, policy: BreakerPolicy, source: SpendSource = read_spends) -> WatchReport:
    """Measure capped budgets and fold the results. One scope's failure is reported and does not stop the others."""
    with transaction(engine) as connection:
        watched = _situation(connection, now, policy)
        catching_up = usage_catching_up(connection, now)
    failed: dict[str, str] = {}
    changed: list[Breaker] = []
    for one, readings in _measured(engine, [w for w in watched if not _settled(w.breaker, now)], now, source, failed):
        if _quiet(one.breaker, readings, now, policy, catching_up):
            continue
        try:
            with transaction(engine) as connection:
                after = _folded(connection, one.breaker, readings, now, policy, catching_up)
        except Exception as error:
            _failed(failed, one.breaker.scope, error)
            continue
        changed += [after] if after != one.breaker else []
    return WatchReport(len(watched), tuple(changed), failed)


def _settled(breaker: Breaker, now: datetime) -> bool:
    """Nothing measured can close an open breaker before the period's end."""
    return breaker.phase == "open" and breaker.trip is not None and now < breaker.trip.period_end


def _situation(connection: Connection, now: datetime, policy: BreakerPolicy) -> list[_Watched]:
    increases = list_cap_increases(connection, now)
    scopes: dict[str, list[tuple[Budget, Money]]] = {}
    for stored in list_budgets(connection):
        budget, name = stored.budget, str(stored.budget.scope)
        mine = [i.increase for i in increases if (i.scope, i.period) == (name, budget.period)]
        cap = effective_cap(budget.cap, mine, now)
        if cap is not None:
            scopes.setdefault(name, []).append((budget, cap))
    breakers = {b.scope: b for b in list_breakers(connection)}
    missing = [name for name in scopes if name not in breakers]
    for name in missing:
        ensure_breaker(connection, name, now, now + policy.quiet_start)
    if missing:
        breakers = {b.scope: b for b in list_breakers(connection)}
    return [_Watched(breakers[name], *zip(*capped, strict=True)) for name, capped in sorted(scopes.items())]


def _measured(
    engine: Engine, watched: Sequence[_Watched], now: datetime, source: SpendSource, failed: dict[str, str]
) -> list[tuple[_Watched, tuple[CapReading, ...]]]:
    """All of them together; if that fails each by itself, so that one scope's trouble stays its own."""
    if not watched:
        return []
    try:
        return _together(engine, watched, now, source)
    except Exception as error:
        if len(watched) == 1:
            _failed(failed, watched[0].breaker.scope, error)
            return []
    log.warning("one of %d budgets could not be measured; trying each alone", len(watched))
    return [found for one in watched for found in _measured(engine, [one], now, source, failed)]


def _together(
    engine: Engine, watched: Sequence[_Watched], now: datetime, source: SpendSource
) -> list[tuple[_Watched, tuple[CapReading, ...]]]:
    with transaction(engine) as connection:
        spends = iter(source(connection, [budget for one in watched for budget in one.budgets], now))
    found: list[tuple[_Watched, tuple[CapReading, ...]]] = []
    for one in watched:
        capped = zip(one.budgets, one.caps, strict=True)
        readings = tuple(_cap_reading(budget, cap, next(spends), now) for budget, cap in capped)
        found.append((one, readings))
    return found


def _cap_reading(budget: Budget, cap: Money, found: Reading, now: datetime) -> CapReading:
    return CapReading(budget.period, budget.window(now).end, found.spend, cap, found.reason)


def _failed(failed: dict[str, str], scope: str, error: Exception) -> None:
    log.error("budget of %s could not be watched", scope, exc_info=error)
    failed[scope] = f"{type(error).__name__}: {error}"


def _quiet(breaker: Breaker, readings: tuple[CapReading, ...], now: datetime, policy: BreakerPolicy, catching_up: bool) -> bool:
    """Whether nothing would change, as far as that can be told without asking the database."""
    if _about_to_trip(breaker, readings, policy):
        return False
    return step(policy, breaker, CapSignal(readings, False, catching_up), now)[0] == breaker


def _folded(
    connection: Connection, breaker: Breaker, readings: tuple[CapReading, ...], now: datetime, policy: BreakerPolicy,
    catching_up: bool,
) -> Breaker:  # fmt: skip
    signal = _signal(connection, breaker, readings, now, policy, catching_up)
    after, _ = step(policy, breaker, signal, now)
    return breaker if after == breaker else fold(connection, breaker.id, signal, now, policy)


def _about_to_trip(breaker: Breaker, readings: Iterable[CapReading], policy: BreakerPolicy) -> bool:
    used = [share(r.spend, r.cap).value for r in readings]
    return breaker.phase != "open" and any(u is not None and u >= policy.trip_share for u in used)


def _signal(
    connection: Connection, breaker: Breaker, readings: tuple[CapReading, ...], now: datetime, policy: BreakerPolicy,
    catching_up: bool,
) -> CapSignal:  # fmt: skip
    """The two questions that cost a scan are asked only of a scope about to trip."""
    if not _about_to_trip(breaker, readings, policy):
        return CapSignal(readings, False, catching_up)
    scope = parse_scope(breaker.scope)
    metered = metered_since(connection, scope, now - OPEN_WINDOWS)
    refused = refused_share_elsewhere(connection, scope, now - BLAST_WINDOW) if breaker.enforced else None
    return CapSignal(readings, metered, catching_up, refused)
