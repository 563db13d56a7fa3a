"""What a budget's own history says of its future, made about hourly: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from core.budget_forecast import PeriodForecast
from core.budgets import HourProfile
from core.money import plain
from core.profile import Learned
from core.windows import QUARTER_HOUR
from models.tables_budget import BudgetOutlookRow
from models.tables_money import LedgerHeadRow

_TIMES = ("as_of", "period_end", "exhausted_at", "earliest", "latest")
_AMOUNTS = ("total", "low", "high", "wape")


@dataclass(frozen=True, slots=True)
class Outlook:
    """``learned`` from the closed hours in [``history_from``, ``history_to``); None for both: there are none."""

    budget_id: int
    made_at: datetime
    history_from: datetime | None
    history_to: datetime | None
    learned: Learned
    forecast: PeriodForecast | None = None


def closed_until(connection: Connection) -> datetime | None:
    """The end of the newest closed quarter hour."""
    newest = connection.execute(select(func.max(LedgerHeadRow.window_start))).scalar()
    return None if newest is None else newest + QUARTER_HOUR


def due_outlooks(connection: Connection, budget_ids: Sequence[int], now: datetime, every: timedelta, most: int) -> list[int]:
    """Those without an outlook first, then the oldest made before ``every`` ago."""
    o = BudgetOutlookRow
    rows = connection.execute(select(o.budget_id, o.made_at).where(o.budget_id.in_(budget_ids)))
    made = {row.budget_id: row.made_at for row in rows}
    due = [n for n in budget_ids if n not in made or made[n] <= now - every]
    return sorted(due, key=lambda n: (n in made, made.get(n, now)))[:most]


def read_outlooks(connection: Connection, budget_ids: Collection[int]) -> dict[int, Outlook]:
    """By budget; nothing for one that has none yet."""
    o = BudgetOutlookRow.__table__
    rows = connection.execute(select(o).where(o.c.budget_id.in_(budget_ids)))
    return {row.budget_id: _outlook(row) for row in rows}


def keep_outlook(connection: Connection, outlook: Outlook) -> None:
    """Put this in the place of the one before."""
    profile = outlook.learned.profile
    row = insert(BudgetOutlookRow).values(
        budget_id=outlook.budget_id, made_at=outlook.made_at, history_from=outlook.history_from, history_to=outlook.history_to,
        weeks=outlook.learned.weeks, profile=None if profile is None else [plain(weight) for weight in profile.weights],
        profile_reason=outlook.learned.reason, forecast=None if outlook.forecast is None else _written(outlook.forecast),
    )  # fmt: skip
    connection.execute(row.on_conflict_do_update(index_elements=["budget_id"], set_={c.name: c for c in row.excluded}))


def forget_outlooks(connection: Connection, but: Collection[int]) -> None:
    """Drop those of budgets no longer in force."""
    connection.execute(delete(BudgetOutlookRow).where(BudgetOutlookRow.budget_id.not_in(but)))


def _outlook(row: Any) -> Outlook:
    profile = None if row.profile is None else HourProfile(tuple(Decimal(weight) for weight in row.profile))
    learned = Learned(profile, row.weeks, row.profile_reason)
    return Outlook(row.budget_id, row.made_at, row.history_from, row.history_to, learned, row.forecast and _read(row.forecast))


def _written(found: PeriodForecast) -> dict[str, Any]:
    values = {field.name: getattr(found, field.name) for field in fields(found)}
    return {
        name: plain(v) if isinstance(v, Decimal) else v.isoformat() if isinstance(v, datetime) else v
        for name, v in values.items()
    }


def _read(stored: dict[str, Any]) -> PeriodForecast:
    times = {name: datetime.fromisoformat(stored[name]) for name in _TIMES if stored[name]}
    amounts = {name: Decimal(stored[name]) for name in _AMOUNTS if stored[name] is not None}
    return PeriodForecast(**{**stored, **times, **amounts})
