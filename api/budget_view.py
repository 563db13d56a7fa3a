"""A budget as people see it: spend so far, pace against the plan, burn now, and when amount and cap run out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from control.running_cost import Spend, SpendAsk, spend_many
from core.budgets import Budget, CapIncrease, Exhaustion, Figure, burn_rate, effective_cap, pace, time_to_exhaustion
from core.money import Money, plain
from core.windows import QUARTER_HOUR, Window, floor_time
from models.decide_repo import StoredBudget, list_cap_increases

RECENT = timedelta(minutes=45)
"""Whole quarter hours before the running one: with it, the last 45 to 60 minutes."""


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """How one budget stands at an instant; ``recent`` is the spend since ``recent_window.start``."""

    stored: StoredBudget
    window: Window
    spent: Spend
    recent: Spend
    recent_window: Window
    cap: Money | None

    @property
    def spend(self) -> Money | None:
        """Spend in the budget's own currency; None when unknown or in another."""
        return _in_currency(self.spent, self.stored.budget)

    @property
    def burn(self) -> Figure:
        """Spend of the last hour over what the plan expects of it."""
        return burn_rate(self.stored.budget, _in_currency(self.recent, self.stored.budget), self.recent_window)


def _in_currency(found: Spend, budget: Budget) -> Money | None:
    return found.amount if found.amount is not None and found.amount.currency == budget.amount.currency else None


class Standings:
    """Measures budgets, each at most every ``ttl_s`` however many pages and scrapes ask; one caller measures at a time."""

    def __init__(self, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s, self._clock = ttl_s, clock
        self._measured: dict[int, tuple[float, BudgetStanding]] = {}
        self._lock = threading.Lock()

    def of(self, connection: Connection, budgets: Sequence[StoredBudget], now: datetime) -> list[BudgetStanding]:
        """Spend freezes unit rates of open quarter hours, so the transaction must be allowed to write. Caps are never old."""
        increases = list_cap_increases(connection, now)
        with self._lock:
            self._measure(connection, [stored for stored in budgets if not self._is_fresh(stored, now)], now)
            found = [self._measured[stored.id][1] for stored in budgets]
        return [replace(s, cap=effective_cap(s.stored.budget.cap, _of(increases, s.stored.budget), now)) for s in found]

    def _is_fresh(self, stored: StoredBudget, now: datetime) -> bool:
        until_s, standing = self._measured.get(stored.id, (0.0, None))
        return standing is not None and self._clock() < until_s and standing.window == stored.budget.window(now)

    def _measure(self, connection: Connection, due: Sequence[StoredBudget], now: datetime) -> None:
        if not due:
            return
        found = measure(connection, due, now)
        until_s = self._clock() + self._ttl_s
        self._measured |= {standing.stored.id: (until_s, standing) for standing in found}


def _of(increases: Sequence[Any], budget: Budget) -> list[CapIncrease]:
    return [i.increase for i in increases if (i.scope, i.period) == (str(budget.scope), budget.period)]


def measure(connection: Connection, budgets: Sequence[StoredBudget], now: datetime) -> list[BudgetStanding]:
    """Every budget's spend of its running period and of the last hour, measured together; the cap is the budget's own."""
    lately = Window(floor_time(now, QUARTER_HOUR) - RECENT, now + timedelta(microseconds=1))
    asks: list[SpendAsk] = []
    for stored in budgets:
        b = stored.budget
        asks += [SpendAsk(b.scope, window, b.cost_basis, b.amount.currency) for window in (b.window(now), lately)]
    spends = iter(spend_many(connection, asks, now))
    return [BudgetStanding(s, s.budget.window(now), next(spends), next(spends), lately, s.budget.cap) for s in budgets]


def budget_row(standing: BudgetStanding, now: datetime) -> dict[str, Any]:
    """One row of ``GET /v1/budgets``."""
    budget, spent = standing.stored.budget, standing.spend
    plan, cap = _runs_out(standing, budget.amount, now), _runs_out(standing, standing.cap, now)
    paced = pace(budget, spent, now)
    return {
        "id": standing.stored.id,
        "scope": str(budget.scope),
        "period": budget.period,
        "version": standing.stored.version,
        "zone": budget.zone,
        "amount": budget.amount.amount,
        "cap": None if budget.cap is None else budget.cap.amount,
        "effective_cap": None if standing.cap is None else standing.cap.amount,
        "currency": budget.amount.currency,
        "cost_basis": budget.cost_basis,
        "owner": budget.owner,
        "window_start": standing.window.start,
        "window_end": standing.window.end,
        "spend": _spend_row(standing),
        "spent_share": ratio(paced.spent_share.value),
        "expected_share": ratio(paced.expected_share),
        "pace": ratio(paced.ratio.value),
        "pace_reason": paced.ratio.reason,
        "burn": ratio(standing.burn.value),
        "burn_reason": standing.burn.reason,
        "exhausted_at": plan.at,
        "exhausted_in_s": None if plan.left is None else int(plan.left.total_seconds()),
        "exhaustion_reason": plan.reason,
        "cap_exhausted_at": cap.at,
        "cap_exhaustion_reason": cap.reason,
    }


def _spend_row(standing: BudgetStanding) -> dict[str, Any]:
    amount, found, currency = standing.spend, standing.spent, standing.stored.budget.amount.currency
    reason = found.reason
    if amount is None and found.amount is not None:
        reason = f"spend is in {found.amount.currency}, the budget in {currency}: no exchange rate"
    known = found.closed.currency == currency
    return {
        "amount": None if amount is None else amount.amount,
        "closed": found.closed.amount if known else None,
        "running": found.running.amount if known else None,
        "reason": reason,
        "state": found.state,
    }


def _runs_out(standing: BudgetStanding, limit: Money | None, now: datetime) -> Exhaustion:
    recent = _in_currency(standing.recent, standing.stored.budget)
    span = now - max(standing.recent_window.start, standing.window.start)
    if span <= timedelta(0):
        return Exhaustion(None, None, "the period has only begun")
    return time_to_exhaustion(standing.spend, limit, recent, span, standing.window.end, now)


def ratio(value: Decimal | None) -> str | None:
    """A ratio to six decimals, as text."""
    return None if value is None else plain(value.quantize(Decimal("0.000001")))
