"""A budget as people see it: spend so far, pace against the plan, burn now, and when amount and cap run out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from control.budget_standing import BudgetStanding, in_currency, kept_standings, measure
from core.budget_tree import Node, budget_tree, unbudgeted_spend
from core.budgets import Budget, CapIncrease, Exhaustion, effective_cap, pace, time_to_exhaustion
from core.money import ZERO, Money, plain
from models.budget_outlook_repo import Outlook, read_outlooks
from models.decide_repo import StoredBudget, list_cap_increases


class Standings:
    """What the control loop keeps of budgets; the rest is measured here, each at most every ``ttl_s`` however many pages and
    scrapes ask, and one caller at a time."""

    def __init__(self, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s, self._clock = ttl_s, clock
        self._measured: dict[int, tuple[float, BudgetStanding]] = {}
        self._lock = threading.Lock()

    def of(
        self, connection: Connection, budgets: Sequence[StoredBudget], now: datetime, *, live: bool = False
    ) -> list[BudgetStanding]:
        """In their order. ``live``: measure all of them now. Measuring freezes unit rates of open quarter hours, so the
        transaction must be allowed to write. Caps are never old."""
        increases = list_cap_increases(connection, now)
        found = {} if live else kept_standings(connection, budgets, now)
        rest = [stored for stored in budgets if stored.id not in found]
        if rest:
            found |= self._live(connection, rest, now, live)
        standings = [found[stored.id] for stored in budgets]
        outlooks = read_outlooks(connection, [stored.id for stored in budgets])
        return [
            replace(
                s,
                cap=effective_cap(s.stored.budget.cap, _of(increases, s.stored.budget), now),
                learned=outlooks[s.stored.id].learned if s.stored.id in outlooks else s.learned,
            )
            for s in standings
        ]

    def _live(
        self, connection: Connection, budgets: Sequence[StoredBudget], now: datetime, anew: bool
    ) -> dict[int, BudgetStanding]:
        with self._lock:
            self._measure(connection, [stored for stored in budgets if anew or not self._is_fresh(stored, now)], now)
            return {stored.id: self._measured[stored.id][1] for stored in budgets}

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


def budget_row(standing: BudgetStanding) -> dict[str, Any]:
    """One row of ``GET /v1/budgets``: the budget as it stood ``as_of``."""
    now = standing.at
    budget, spent = standing.stored.budget, standing.spend
    whole = standing.plan
    plan = _runs_out(standing, spent, whole.amount, now)
    cap = _runs_out(standing, standing.decision, standing.cap, now)
    paced, burn = pace(whole, spent, now, standing.learned.profile), standing.burn
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
        "fiscal_start": budget.fiscal_start,
        "rollover": budget.rollover,
        "carried": None if standing.carried.amount is None else standing.carried.amount.amount,
        "carried_reason": standing.carried.reason,
        "plan": whole.amount.amount,
        "window_start": standing.window.start,
        "window_end": standing.window.end,
        "spend": _spend_row(standing),
        "spent_share": ratio(paced.spent_share.value),
        "expected_share": ratio(paced.expected_share),
        "pace": ratio(paced.ratio.value),
        "pace_reason": paced.ratio.reason,
        "profile_weeks": standing.learned.weeks if standing.learned.profile else None,
        "profile_reason": standing.learned.reason,
        "burn": ratio(burn.value),
        "burn_reason": burn.reason,
        "exhausted_at": plan.at,
        "exhausted_in_s": None if plan.left is None else int(plan.left.total_seconds()),
        "exhaustion_reason": plan.reason,
        "cap_exhausted_at": cap.at,
        "cap_exhaustion_reason": cap.reason,
        "as_of": standing.at,
        "live": standing.live,
    }


def tree_rows(standings: Sequence[BudgetStanding]) -> list[dict[str, Any]]:
    """Rows of ``GET /v1/budgets/tree``: each parent before its children, with what no child was given or has spent."""
    nodes = budget_tree([standing.stored.budget for standing in standings])
    spends = [standing.spend for standing in standings]
    return [_tree_row(node, standings, unbudgeted_spend(node, spends)) for node in nodes]


def _tree_row(node: Node, standings: Sequence[BudgetStanding], rest: Money | None) -> dict[str, Any]:
    own = standings[node.place].stored
    reason = ""
    if node.children and rest is None:
        reason = "a child is on another cost basis" if node.mixed else "a spend is not known in full"
    return {
        "id": own.id,
        "parent": None if node.parent is None else standings[node.parent].stored.id,
        "depth": node.depth,
        "scope": str(own.budget.scope),
        "period": own.budget.period,
        "cost_basis": own.budget.cost_basis,
        "amount": own.budget.amount.amount,
        "currency": own.budget.amount.currency,
        "spend": None if (spend := standings[node.place].spend) is None else spend.amount,
        "children": len(node.children),
        "children_amount": node.assigned.amount if node.children else None,
        "unassigned": node.unassigned.amount if node.children else None,
        "unbudgeted_spend": None if rest is None else rest.amount,
        "unbudgeted_reason": reason,
    }


def forecast_rows(connection: Connection, budgets: Sequence[StoredBudget], now: datetime) -> list[dict[str, Any]]:
    """Rows of ``GET /v1/budgets/forecast``: the running periods' totals as the control loop last forecast them."""
    outlooks = read_outlooks(connection, [stored.id for stored in budgets])
    return [_forecast_row(stored, outlooks.get(stored.id), now) for stored in budgets]


def _forecast_row(stored: StoredBudget, outlook: Outlook | None, now: datetime) -> dict[str, Any]:
    budget, found = stored.budget, None if outlook is None else outlook.forecast
    reason = "the control loop has made no forecast yet" if outlook is None else "no closed hours of this period to go by"
    if found is not None and found.period_end != budget.window(now).end:
        found, reason = None, "the period has begun since the last forecast"
    names = (
        "as_of", "total", "low", "high", "exhausted_at", "earliest", "latest", "method", "origins", "wape", "reason"
    )  # fmt: skip
    return {
        "id": stored.id,
        "scope": str(budget.scope),
        "period": budget.period,
        "currency": budget.amount.currency,
        "amount": budget.amount.amount,
        "period_end": budget.window(now).end,
        **{name: None if found is None else getattr(found, name) for name in names},
        "reason": reason if found is None else found.reason,
        "wape": None if found is None else ratio(found.wape),
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
        "trueup": (found.trueup.amount if found.trueup else ZERO) if known else None,
        "reason": reason,
        "state": found.state,
    }


def _runs_out(standing: BudgetStanding, spend: Money | None, limit: Money | None, now: datetime) -> Exhaustion:
    recent = in_currency(standing.recent, standing.stored.budget)
    span = now - max(standing.recent_window.start, standing.window.start)
    if span <= timedelta(0):
        return Exhaustion(None, None, "the period has only begun")
    return time_to_exhaustion(spend, limit, recent, span, standing.window.end, now)


def ratio(value: Decimal | None) -> str | None:
    """A ratio to six decimals, as text."""
    return None if value is None else plain(value.quantize(Decimal("0.000001")))
