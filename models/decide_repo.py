"""Budgets, temporary cap increases, exemptions and standing limits: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import ARRAY, BigInteger, Connection, func, select, text, update
from sqlalchemy import cast as cast_to
from sqlalchemy import insert as plain_insert
from sqlalchemy.dialects.postgresql import insert

from core.budgets import Budget, CapIncrease, CostBasis
from core.money import Money
from core.policy import Mode
from core.scopes import Scope, parse_scope
from core.windows import Period
from models.base import Utc
from models.tables_decide import BudgetRow, CapIncreaseRow, ExemptionRow, StandingLimitRow


@dataclass(frozen=True, slots=True)
class StoredBudget:
    """The budget in force for (scope, period): the newest version that was not retired."""

    id: int
    version: int
    budget: Budget
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredIncrease:
    id: int
    scope: str
    period: str
    increase: CapIncrease


@dataclass(frozen=True, slots=True)
class Exemption:
    """A scope no breaker refuses until ``expires_at``."""

    id: int
    scope: str
    owner: str
    reason: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class StandingLimit:
    """A limit that needs no trip; ``mode`` warn only reports."""

    id: int
    scope: str
    name: str
    value: int
    mode: Mode
    updated_by: str
    updated_at: datetime


def notify(connection: Connection, channel: str, payload: str = "") -> None:
    """Wake listeners when this transaction commits."""
    connection.execute(select(func.pg_notify(channel, payload)))


def list_budgets(connection: Connection) -> list[StoredBudget]:
    """The budgets in force, by scope and period."""
    rows = connection.execute(select(BudgetRow.__table__).where(BudgetRow.retired_at.is_(None)).order_by("scope", "period"))
    return [_budget(row) for row in rows]


def _budget(row: Any) -> StoredBudget:
    budget = Budget(
        scope=parse_scope(row.scope),
        period=cast(Period, row.period),
        zone=row.zone,
        amount=Money(row.amount, row.currency),
        cost_basis=cast(CostBasis, row.cost_basis),
        cap=None if row.cap is None else Money(row.cap, row.currency),
        owner=row.owner,
        fiscal_start=row.fiscal_start,
        rollover=row.rollover,
    )
    return StoredBudget(row.id, row.version, budget, row.created_by, row.created_at)


def budgets_ruling_at(connection: Connection, at: Mapping[int, datetime]) -> dict[int, StoredBudget]:
    """By id of a budget the version of its scope and period that was in force at the instant; nothing where there was none."""
    b, mine = BudgetRow.__table__, BudgetRow.__table__.alias("mine")
    asked = func.unnest(cast_to(list(at), ARRAY(BigInteger)), cast_to(list(at.values()), ARRAY(Utc)))
    given = asked.table_valued("id", "at", name="asked").render_derived()
    ruling = (b.c.scope == mine.c.scope) & (b.c.period == mine.c.period) & (b.c.created_at <= given.c.at)
    ruling &= b.c.retired_at.is_(None) | (b.c.retired_at > given.c.at)
    query = select(given.c.id.label("asked_id"), b).select_from(given).join(mine, mine.c.id == given.c.id).join(b, ruling)
    return {row.asked_id: _budget(row) for row in connection.execute(query)} if at else {}


def find_budget(connection: Connection, scope: Scope, period: str) -> StoredBudget | None:
    """The budget in force for (scope, period)."""
    found = [b for b in list_budgets(connection) if b.budget.scope == scope and b.budget.period == period]
    return found[0] if found else None


def put_budget(connection: Connection, budget: Budget, actor: str, now: datetime) -> StoredBudget:
    """Write the budget's next version and retire the one in force. Writers of one scope and period wait for each other."""
    scope = str(budget.scope)
    connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"budget {scope} {budget.period}", 0))))
    mine = (BudgetRow.scope == scope) & (BudgetRow.period == budget.period)
    last = connection.execute(select(func.max(BudgetRow.version)).where(mine)).scalar() or 0
    retire_budget(connection, budget.scope, budget.period, now)
    row = {
        "scope": scope, "period": budget.period, "version": last + 1, "zone": budget.zone, "amount": budget.amount.amount,
        "cap": budget.cap and budget.cap.amount, "currency": budget.amount.currency, "cost_basis": budget.cost_basis,
        "owner": budget.owner, "fiscal_start": budget.fiscal_start, "rollover": budget.rollover, "created_by": actor,
        "created_at": now,
    }  # fmt: skip
    made = connection.execute(plain_insert(BudgetRow).values(row).returning(BudgetRow.id)).scalar_one()
    return StoredBudget(made, last + 1, budget, actor, now)


def retire_budget(connection: Connection, scope: Scope, period: str, now: datetime) -> bool:
    """Take the budget in force away; False when there was none."""
    mine = (BudgetRow.scope == str(scope)) & (BudgetRow.period == period) & BudgetRow.retired_at.is_(None)
    return connection.execute(update(BudgetRow).where(mine).values(retired_at=now)).rowcount > 0


def add_cap_increase(connection: Connection, scope: Scope, period: str, increase: CapIncrease) -> StoredIncrease:
    row = {
        "scope": str(scope), "period": period, "extra": increase.extra.amount, "currency": increase.extra.currency,
        "starts_at": increase.starts_at, "expires_at": increase.expires_at, "approver": increase.approver,
        "reason": increase.reason,
    }  # fmt: skip
    made = connection.execute(plain_insert(CapIncreaseRow).values(row).returning(CapIncreaseRow.id)).scalar_one()
    return StoredIncrease(made, str(scope), period, increase)


def list_cap_increases(connection: Connection, at: datetime) -> list[StoredIncrease]:
    """The increases that are in force at ``at`` or will be."""
    rows = connection.execute(select(CapIncreaseRow.__table__).where(CapIncreaseRow.expires_at > at).order_by("id"))
    return [
        StoredIncrease(
            r.id, r.scope, r.period, CapIncrease(Money(r.extra, r.currency), r.starts_at, r.expires_at, r.approver, r.reason)
        )
        for r in rows
    ]


def add_exemption(
    connection: Connection, scope: Scope, owner: str, reason: str, now: datetime, expires_at: datetime
) -> Exemption:
    row = {"scope": str(scope), "owner": owner, "reason": reason, "created_at": now, "expires_at": expires_at}
    made = connection.execute(plain_insert(ExemptionRow).values(row).returning(ExemptionRow.id)).scalar_one()
    return Exemption(made, str(scope), owner, reason, now, expires_at)


def end_exemption(connection: Connection, exemption_id: int, now: datetime) -> Exemption | None:
    """Let an exemption expire now; None when it does not exist or has expired."""
    e = ExemptionRow
    query = update(e).where((e.id == exemption_id) & (e.expires_at > now)).values(expires_at=now).returning(e.__table__)
    row = connection.execute(query).one_or_none()
    return None if row is None else _exemption(row)


def list_exemptions(connection: Connection, at: datetime) -> list[Exemption]:
    """The exemptions in force at ``at``."""
    rows = connection.execute(select(ExemptionRow.__table__).where(ExemptionRow.expires_at > at).order_by("id"))
    return [_exemption(row) for row in rows]


def _exemption(r: Any) -> Exemption:
    return Exemption(r.id, r.scope, r.owner, r.reason, r.created_at, r.expires_at)


def put_limit(
    connection: Connection, scope: Scope, name: str, value: int, mode: Mode, actor: str, now: datetime
) -> StandingLimit:
    """Set the limit ``name`` of ``scope``, replacing an earlier value."""
    row = insert(StandingLimitRow).values(scope=str(scope), name=name, value=value, mode=mode, updated_by=actor, updated_at=now)
    changed = {column: row.excluded[column] for column in ("value", "mode", "updated_by", "updated_at")}
    query = row.on_conflict_do_update(index_elements=["scope", "name"], set_=changed).returning(StandingLimitRow.id)
    return StandingLimit(connection.execute(query).scalar_one(), str(scope), name, value, mode, actor, now)


def drop_limit(connection: Connection, scope: Scope, name: str) -> bool:
    """Remove a limit; False when there was none."""
    query = text("DELETE FROM standing_limit WHERE scope = :scope AND name = :name")
    return connection.execute(query, {"scope": str(scope), "name": name}).rowcount > 0


def list_limits(connection: Connection) -> list[StandingLimit]:
    rows = connection.execute(select(StandingLimitRow.__table__).order_by("scope", "name"))
    return [StandingLimit(r.id, r.scope, r.name, r.value, cast(Mode, r.mode), r.updated_by, r.updated_at) for r in rows]
