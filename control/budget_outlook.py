"""What each budget's own history says of its future, kept for pages and alerts: made about hourly, a few budgets a turn."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from core.budget_forecast import forecast_period
from core.budgets import HOUR
from core.profile import WEEK, WEEKS_KEPT, Learned, learn_profile
from core.windows import Window, floor_time
from models.budget_outlook_repo import Outlook, closed_until, due_outlooks, forget_outlooks, keep_outlook
from models.closed_spend import hourly_costs
from models.database import transaction
from models.decide_repo import StoredBudget, list_budgets

EVERY = timedelta(hours=1)
A_TURN = 10
"""Budgets in one transaction: each reads eight weeks of hours."""
NO_HOURS = "no history by hour is kept for service tiers: every hour is expected alike"


def refresh_outlooks(engine: Engine, now: datetime) -> int:
    """Make the outlooks that are due, at most ``A_TURN``; returns how many. Those of budgets no longer in force are dropped."""
    with transaction(engine) as connection:
        budgets = {stored.id: stored for stored in list_budgets(connection)}
        forget_outlooks(connection, budgets.keys())
        due = [budgets[n] for n in due_outlooks(connection, list(budgets), now, EVERY, A_TURN)]
        closed = closed_until(connection) if due else None
        for stored in due:
            keep_outlook(connection, _made(connection, stored, closed, now))
    return len(due)


def _made(connection: Connection, stored: StoredBudget, closed: datetime | None, now: datetime) -> Outlook:
    budget = stored.budget
    if budget.scope.kind == "service_tier":
        return Outlook(stored.id, now, None, None, Learned(None, 0, NO_HOURS))
    end = None if closed is None else floor_time(min(closed, now), HOUR)
    costs = {}
    if end is not None:
        window = Window(end - WEEKS_KEPT * WEEK, end)
        costs = hourly_costs(connection, [(budget.scope, window)], budget.cost_basis)[0].get(budget.amount.currency, {})
    if end is None or not costs:
        return Outlook(stored.id, now, None, None, Learned(None, 0, "no closed hour in the budget's currency yet"))
    seen = Window(min(costs), end)
    learned = learn_profile(costs, seen, budget.zone)
    return Outlook(stored.id, now, seen.start, seen.end, learned, forecast_period(costs, seen, budget, now, learned.profile))
