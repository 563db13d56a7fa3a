"""Use cases on budgets, cap increases, exemptions and standing limits: checked, audited, and announced to the control loop.

Functions take an open transaction; the caller commits. Each returns what was stored with warnings (for example about a scope in
which nothing was ever seen: allowed, for a budget may precede its tenant, yet more often a slip).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Generic, TypeVar, cast

from sqlalchemy import Connection

from core.breaker_values import BreakerPolicy
from core.budgets import Budget, CapIncrease, CostBasis, default_basis
from core.errors import BadInput, CurrencyMismatch, NotFound
from core.money import Money, plain
from core.policy import LIMIT_NAMES, Mode, rfc3339
from core.scopes import Scope, parse_scope
from core.windows import Period, require_utc
from models import decide_repo as repo
from models.audit_repo import append_audit
from models.breaker_repo import ensure_breaker
from models.scope_usage import scope_is_known

T = TypeVar("T")
CHANNEL = "tokenfuse_settings"
MAX_TEXT = 500
MAX_LIMIT = 10**9


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """What was stored, and what a person should look at."""

    value: T
    warnings: tuple[str, ...] = ()


def set_budget(
    connection: Connection,
    scope: str,
    period: str,
    amount: Decimal,
    currency: str,
    zone: str,
    actor: str,
    now: datetime,
    *,
    cap: Decimal | None = None,
    cost_basis: str | None = None,
    owner: str = "",
    fiscal_start: int = 1,
    rollover: bool = False,
    policy: BreakerPolicy | None = None,
) -> Stored[repo.StoredBudget]:
    """Set (scope, period)'s budget; an equal one stored already is returned unchanged. A cap makes a breaker, in shadow."""
    parsed = parse_scope(scope)
    basis = cast(CostBasis, cost_basis or default_basis(parsed))
    capped = None if cap is None else Money(cap, currency)
    budget = Budget(
        parsed, cast(Period, period), zone, Money(amount, currency), basis, capped, _text(owner, "owner", True), fiscal_start,
        rollover,
    )  # fmt: skip
    warnings = _unknown(connection, parsed)
    if budget.cap is not None and budget.cap.amount < budget.amount.amount:
        warnings = (*warnings, "the cap is below the amount: tier 3 will trip before the plan is spent")
    same = repo.find_budget(connection, parsed, period)
    if same is not None and same.budget == budget:
        return Stored(same, warnings)
    stored = repo.put_budget(connection, budget, actor, now)
    if capped is not None:
        ensure_breaker(connection, str(parsed), now, now + (policy or BreakerPolicy()).quiet_start)
    detail = {
        "period": period, "zone": zone, "amount": plain(amount), "cap": None if cap is None else plain(cap), "currency": currency,
        "cost_basis": basis, "owner": owner, "fiscal_start": fiscal_start, "rollover": rollover, "version": stored.version,
    }  # fmt: skip
    _note(connection, now, actor, "budget.set", str(parsed), detail)
    return Stored(stored, warnings)


def remove_budget(connection: Connection, scope: str, period: str, actor: str, now: datetime) -> None:
    """Retire the budget in force. An open breaker stays open until a person acts. Raises NotFound."""
    parsed = parse_scope(scope)
    if not repo.retire_budget(connection, parsed, period, now):
        raise NotFound(f"{scope} has no {period} budget", hint="list them with `tokenfuse show budgets`")
    _note(connection, now, actor, "budget.remove", str(parsed), {"period": period})


def increase_cap(
    connection: Connection,
    scope: str,
    period: str,
    extra: Decimal,
    currency: str,
    expires_at: datetime,
    approver: str,
    reason: str,
    now: datetime,
) -> Stored[repo.StoredIncrease]:
    """Raise a cap by ``extra`` from now until ``expires_at``. Raises NotFound without a capped budget, BadInput on bad values."""
    parsed = parse_scope(scope)
    _future(expires_at, now)
    increase = CapIncrease(Money(extra, currency), now, expires_at, _text(approver, "approver"), _text(reason, "reason"))
    budget = repo.find_budget(connection, parsed, period)
    if budget is None or budget.budget.cap is None:
        raise NotFound(f"{scope} has no {period} budget with a cap", hint="set one first")
    if budget.budget.cap.currency != currency:
        raise CurrencyMismatch(f"the cap is in {budget.budget.cap.currency}", field="currency", value=currency)
    stored = repo.add_cap_increase(connection, parsed, period, increase)
    detail = {
        "period": period, "extra": plain(extra), "currency": currency, "expires_at": rfc3339(expires_at), "reason": reason
    }  # fmt: skip
    _note(connection, now, approver, "budget.increase_cap", str(parsed), detail)
    return Stored(stored)


def add_exemption(
    connection: Connection, scope: str, owner: str, reason: str, expires_at: datetime, actor: str, now: datetime
) -> Stored[repo.Exemption]:
    """Let a scope through until ``expires_at``, whatever breakers say. It needs an owner and a reason."""
    parsed = parse_scope(scope)
    if parsed.kind == "platform":
        raise BadInput("the whole platform cannot be exempt", field="scope", value=scope, hint="use `tokenfuse breaker pause`")
    _future(expires_at, now)
    stored = repo.add_exemption(connection, parsed, _text(owner, "owner"), _text(reason, "reason"), now, expires_at)
    _note(
        connection, now, actor, "exemption.add", str(parsed),
        {"id": stored.id, "owner": owner, "reason": reason, "expires_at": rfc3339(expires_at)},
    )  # fmt: skip
    return Stored(stored, _unknown(connection, parsed))


def end_exemption(connection: Connection, exemption_id: int, actor: str, now: datetime) -> repo.Exemption:
    """End an exemption before its time. Raises NotFound."""
    ended = repo.end_exemption(connection, exemption_id, now)
    if ended is None:
        raise NotFound(f"there is no exemption {exemption_id} in force")
    _note(connection, now, actor, "exemption.end", ended.scope, {"id": exemption_id})
    return ended


def set_limit(
    connection: Connection, scope: str, name: str, value: int, mode: str, actor: str, now: datetime
) -> Stored[repo.StandingLimit]:
    """Set a standing limit, which needs no trip. ``mode`` warn reports only, enforce refuses."""
    parsed = parse_scope(scope)
    if name not in LIMIT_NAMES:
        raise BadInput(f"must be one of {', '.join(LIMIT_NAMES)}", field="name", value=name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_LIMIT:
        raise BadInput(f"must be a whole number from 1 to {MAX_LIMIT}", field="value", value=value)
    if mode not in ("warn", "enforce"):
        raise BadInput("must be warn or enforce", field="mode", value=mode)
    stored = repo.put_limit(connection, parsed, name, value, cast(Mode, mode), actor, now)
    _note(connection, now, actor, "limit.set", str(parsed), {"name": name, "value": value, "mode": mode})
    return Stored(stored, _unknown(connection, parsed))


def remove_limit(connection: Connection, scope: str, name: str, actor: str, now: datetime) -> None:
    """Take a standing limit away. Raises NotFound."""
    parsed = parse_scope(scope)
    if not repo.drop_limit(connection, parsed, name):
        raise NotFound(f"{scope} has no limit {name}")
    _note(connection, now, actor, "limit.remove", str(parsed), {"name": name})


def _note(connection: Connection, now: datetime, actor: str, action: str, subject: str, detail: Mapping[str, object]) -> None:
    append_audit(connection, now, _text(actor, "actor"), action, subject, detail)
    repo.notify(connection, CHANNEL, action)


def _unknown(connection: Connection, scope: Scope) -> tuple[str, ...]:
    if scope.kind in ("platform", "service_tier") or scope_is_known(connection, scope):
        return ()
    return (f"nothing was ever seen of {scope}: check its spelling",)


def _future(expires_at: datetime, now: datetime) -> None:
    if require_utc(expires_at, "expires_at") <= now:
        raise BadInput("must be in the future", field="expires_at", value=expires_at.isoformat())


def _text(value: str, field: str, may_be_empty: bool = False) -> str:
    if not (may_be_empty or value.strip()) or len(value) > MAX_TEXT or not value.isprintable():
        raise BadInput(f"must have 1 to {MAX_TEXT} printable characters", field=field, value=value)
    return value
