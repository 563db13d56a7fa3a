"""What the control loop last measured of the budgets in force: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.postgresql import insert

from core.budgets import Carried
from core.money import ZERO, Money
from core.spend import Spend, SpendState
from models.outbox_repo import beat
from models.tables_budget import BudgetStatusRow
from models.tables_decide import HeartbeatRow

HEARTBEAT = "budgets"
AT_ONCE = 1_000
"""Rows a statement: each takes twenty of the 65,535 parameters one may have."""


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """Spend of the budget's period that starts at ``period_start`` and of its last hour, and what it brings along."""

    budget_id: int
    period_start: datetime
    spent: Spend
    recent: Spend
    carried: Carried


@dataclass(frozen=True, slots=True)
class KeptStatuses:
    """By budget; all of them measured at ``at``, the next time within about ``every``."""

    at: datetime
    every: timedelta
    by_budget: dict[int, BudgetStatus]


def read_statuses(connection: Connection) -> KeptStatuses | None:
    """In one statement, so that the time is that of the rows; None before the first measuring."""
    h, s = HeartbeatRow.__table__, BudgetStatusRow.__table__
    query = select(h.c.at, h.c.detail, s).select_from(h.outerjoin(s, s.c.budget_id.is_not(None))).where(h.c.name == HEARTBEAT)
    rows = connection.execute(query).all()
    if not rows:
        return None
    found = {row.budget_id: _status(row) for row in rows if row.budget_id is not None}
    return KeptStatuses(rows[0].at, timedelta(seconds=rows[0].detail["every_s"]), found)


def keep_statuses(connection: Connection, statuses: Sequence[BudgetStatus], at: datetime, every_s: float) -> int:
    """Make these the statuses as of ``at``; returns how many rows had to be written for it."""
    before = read_statuses(connection)
    known = before.by_budget if before is not None else {}
    changed = [status for status in statuses if known.get(status.budget_id) != status]
    gone = known.keys() - {status.budget_id for status in statuses}
    for n in range(0, len(changed), AT_ONCE):
        rows = insert(BudgetStatusRow).values([_row(status, at) for status in changed[n : n + AT_ONCE]])
        connection.execute(rows.on_conflict_do_update(index_elements=["budget_id"], set_={c.name: c for c in rows.excluded}))
    if gone:
        connection.execute(delete(BudgetStatusRow).where(BudgetStatusRow.budget_id.in_(gone)))
    beat(connection, HEARTBEAT, at, {"ok": True, "every_s": every_s, "budgets": len(statuses)})
    return len(changed) + len(gone)


def _row(status: BudgetStatus, at: datetime) -> dict[str, Any]:
    spends = {**_columns("spent", status.spent), **_columns("recent", status.recent)}
    carried = status.carried.amount
    return {
        "budget_id": status.budget_id, "period_start": status.period_start, **spends, "changed_at": at,
        "carried": carried and carried.amount, "carried_currency": carried.currency if carried else "",
        "carried_reason": status.carried.reason,
    }  # fmt: skip


def _columns(name: str, spend: Spend) -> dict[str, Any]:
    return {
        name: None if spend.amount is None else spend.amount.amount,
        f"{name}_running": spend.running.amount,
        f"{name}_closed": spend.closed.amount,
        f"{name}_trueup": spend.trueup.amount if spend.trueup else ZERO,
        f"{name}_currency": spend.closed.currency,
        f"{name}_state": spend.state,
        f"{name}_reason": spend.reason,
    }


def _status(row: Any) -> BudgetStatus:
    values = row._mapping
    carried = None if row.carried is None else Money(row.carried, row.carried_currency)
    spends = _spend(values, "spent"), _spend(values, "recent")
    return BudgetStatus(row.budget_id, row.period_start, *spends, Carried(carried, row.carried_reason))


def _spend(values: Any, name: str) -> Spend:
    currency, amount = values[f"{name}_currency"], values[name]
    running, closed = (Money(values[f"{name}_{part}"], currency) for part in ("running", "closed"))
    known = None if amount is None else Money(amount, currency)
    trueup = Money(values[f"{name}_trueup"], currency)
    state = cast(SpendState, values[f"{name}_state"])
    return Spend(known, running, closed, values[f"{name}_reason"], state, trueup if trueup.amount else None)
