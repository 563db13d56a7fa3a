"""How budgets stand: spend of the running period and of the last hour, measured together and kept for pages to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from control.running_cost import SpendAsk, freeze_open, spend_many
from core.budgets import Budget, Carried, Figure, burn_rate, carry_over
from core.money import Money
from core.profile import Learned
from core.spend import Spend
from core.windows import QUARTER_HOUR, Window, floor_time
from models.budget_status_repo import BudgetStatus, keep_statuses, read_statuses
from models.database import transaction
from models.decide_repo import StoredBudget, budgets_ruling_at, list_budgets

RECENT = timedelta(minutes=45)
"""Whole quarter hours before the running one: with it, the last 45 to 60 minutes."""
NOT_LEARNED = Learned(None, 0, "no outlook was made yet: every hour is expected alike")
STALE_AFTER = 2
"""What is kept is shown for so many of the control loop's rounds; after that it is measured anew."""


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """How one budget stood ``at`` an instant; ``recent`` is the spend since ``recent_window.start``. ``live``: measured for
    whoever asked, not by the control loop."""

    stored: StoredBudget
    window: Window
    spent: Spend
    recent: Spend
    recent_window: Window
    cap: Money | None
    carried: Carried
    at: datetime
    live: bool
    learned: Learned = NOT_LEARNED

    @property
    def plan(self) -> Budget:
        """The budget with what it brings from the period before in its amount: pace, burn and forecasts go by it."""
        budget, carried = self.stored.budget, self.carried.amount
        return budget if carried is None or not carried.amount else replace(budget, amount=budget.amount + carried)

    @property
    def spend(self) -> Money | None:
        """Spend in the budget's own currency; None when unknown or in another."""
        return in_currency(self.spent, self.stored.budget)

    @property
    def decision(self) -> Money | None:
        """What the cap is compared with: the spend at provisional rates, whatever bills say since."""
        return None if self.spend is None else self.spent.decision

    @property
    def burn(self) -> Figure:
        """Spend of the last hour over what the plan expects of it."""
        return burn_rate(self.plan, in_currency(self.recent, self.stored.budget), self.recent_window, self.learned.profile)


def in_currency(found: Spend, budget: Budget) -> Money | None:
    return found.amount if found.amount is not None and found.amount.currency == budget.amount.currency else None


def measure(connection: Connection, budgets: Sequence[StoredBudget], now: datetime) -> list[BudgetStanding]:
    """Every budget's spend of its running period and of the last hour, measured together; the cap is the budget's own."""
    lately = _lately(now)
    asks: list[SpendAsk] = []
    for stored in budgets:
        b = stored.budget
        asks += [SpendAsk(b.scope, window, b.cost_basis, b.amount.currency) for window in (b.window(now), lately)]
    rolling = [s for s in budgets if s.budget.rollover]
    asks += [SpendAsk(b.scope, b.window_before(now), b.cost_basis, b.amount.currency) for b in (s.budget for s in rolling)]
    spends = spend_many(connection, asks, now)
    ruling = budgets_ruling_at(connection, {s.id: s.budget.window(now).start - timedelta(microseconds=1) for s in rolling})
    left = {s.id: _carried(s, ruling.get(s.id), spends[2 * len(budgets) + n]) for n, s in enumerate(rolling)}
    return [
        BudgetStanding(
            s, s.budget.window(now), spends[2 * n], spends[2 * n + 1], lately, s.budget.cap,
            left.get(s.id) or carry_over(s.budget, None, None), now, True,
        )
        for n, s in enumerate(budgets)
    ]  # fmt: skip


def _carried(stored: StoredBudget, before: StoredBudget | None, found: Spend) -> Carried:
    amount = None if before is None else before.budget.amount
    return carry_over(stored.budget, amount, in_currency(found, stored.budget), found.reason)


def keep_standings(engine: Engine, now: datetime, every_s: float) -> int:
    """Measure all budgets in force and keep what was found in the same transaction; returns how many rows changed. Also fixes
    the unit rates of the open quarter hours that have work, so that no page has to. ``every_s``: until the next time."""
    with transaction(engine) as connection:
        freeze_open(connection, now)
        found = measure(connection, list_budgets(connection), now)
        statuses = [BudgetStatus(s.stored.id, s.window.start, s.spent, s.recent, s.carried) for s in found]
        return keep_statuses(connection, statuses, now, every_s)


def kept_standings(connection: Connection, budgets: Sequence[StoredBudget], now: datetime) -> dict[int, BudgetStanding]:
    """By budget what was kept; nothing for one that was never measured, whose period has ended since, or long ago."""
    kept = read_statuses(connection) if budgets else None
    if kept is None or now - kept.at > STALE_AFTER * kept.every:
        return {}
    lately = _lately(kept.at)
    found: dict[int, BudgetStanding] = {}
    for stored in budgets:
        status, window = kept.by_budget.get(stored.id), stored.budget.window(now)
        if status is not None and status.period_start == window.start:
            found[stored.id] = BudgetStanding(
                stored, window, status.spent, status.recent, lately, stored.budget.cap, status.carried, kept.at, False
            )
    return found


def _lately(now: datetime) -> Window:
    return Window(floor_time(now, QUARTER_HOUR) - RECENT, now + timedelta(microseconds=1))
