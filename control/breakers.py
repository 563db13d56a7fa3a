"""Breakers in the database: lock the row, fold a signal, write state, event, audit and effects in one transaction.

(breaker id, epoch) keys every effect, so a repeated fold, a crash or a second runner never acts twice for one decision.
Functions take an open transaction; the caller commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from sqlalchemy import Connection

from control.incidents import follow_breaker
from core.breaker import step
from core.breaker_values import (
    SYSTEM_ACTOR,
    Allowance,
    Approve,
    Breaker,
    BreakerPolicy,
    Command,
    Enforce,
    Pause,
    Reset,
    Shadow,
    Signal,
)
from core.budgets import Budget, CapIncrease, effective_cap
from core.errors import BadInput, Conflict, NotFound, Refused
from core.money import Money, plain
from core.policy import rfc3339
from core.ports import Effect
from core.scopes import parse_scope
from models.audit_repo import append_audit
from models.breaker_repo import BreakerEvent, add_event, ensure_breaker, list_breakers, lock_breaker, save_breaker
from models.decide_repo import (
    StoredBudget,
    add_cap_increase,
    find_budget,
    list_budgets,
    list_cap_increases,
    notify,
    put_budget,
)
from models.outbox_repo import enqueue

PLATFORM = "platform"
BudgetSpend = Callable[[Connection, Budget, datetime], Money | None]
"""What a budget's scope has spent in its running period; None when unknown."""


@dataclass(frozen=True, slots=True)
class AllowanceRequest:
    """What the person resetting grants, in the budget's currency: a new cap for good, or ``extra`` until ``until``."""

    new_cap: Decimal | None = None
    extra: Decimal | None = None
    until: datetime | None = None


def fold(connection: Connection, breaker_id: int, signal: Signal, now: datetime, policy: BreakerPolicy) -> Breaker:
    """Fold one signal into one breaker under its row lock; returns the state after. Raises what ``step`` raises, or NotFound."""
    before = _locked(connection, breaker_id)
    after, commands = step(policy, before, signal, now)
    if after != before:
        save_breaker(connection, after)
    if after.epoch != before.epoch:
        _record(connection, before, after, commands, signal, now)
    return after


def _locked(connection: Connection, breaker_id: int) -> Breaker:
    found = lock_breaker(connection, breaker_id)
    if found is None:
        raise NotFound(f"there is no breaker {breaker_id}", hint="list them with `tokenfuse breaker list`")
    return found


def _record(
    connection: Connection, before: Breaker, after: Breaker, commands: Sequence[Command], signal: Signal, now: datetime
) -> None:
    actor: str = getattr(signal, "actor", SYSTEM_ACTOR)
    shadow = not after.enforced or after.paused(now)
    detail: dict[str, str | int | bool | None] = {
        "signal": type(signal).__name__,
        "from_phase": before.phase,
        "to_phase": after.phase,
        "epoch": after.epoch,
        "enforced": after.enforced,
        "shadow": shadow,
        "paused_until": None if after.paused_until is None else rfc3339(after.paused_until),
        "reason": after.reason,
    }
    if after.trip is not None:
        detail |= {
            "spend": plain(after.trip.spend.amount),
            "cap": plain(after.trip.cap.amount),
            "currency": after.trip.cap.currency,
            "period": after.trip.period,
        }
    event = BreakerEvent(after.id, after.epoch, now, before.phase, after.phase, shadow, actor, after.reason, detail)
    add_event(connection, event)
    append_audit(connection, now, actor, f"breaker.{type(signal).__name__.lower()}", after.scope, {"breaker": after.id, **detail})
    follow_breaker(connection, before, after, signal, now)
    for command in commands:
        _send(connection, command, now)
    notify(connection, "tokenfuse_settings", "breaker")


def _send(connection: Connection, command: Command, now: datetime) -> None:
    if command.kind == "publish_policy":
        return  # level-triggered: the loop publishes what the rows say
    if command.kind in ("notify", "page"):
        severity = "page" if command.kind == "page" else "notice"
        enqueue(connection, Effect(command.key, "notify", {**command.payload, "severity": severity, "at": rfc3339(now)}), now)
    elif not command.shadow:
        enqueue(connection, Effect(command.key, command.kind, command.payload), now)


def find_breaker(connection: Connection, name: str) -> Breaker:
    """A breaker by its number or its scope. Raises NotFound."""
    for breaker in list_breakers(connection):
        if name in (str(breaker.id), breaker.scope):
            return breaker
    raise NotFound(f"there is no breaker {name!r}", hint="a breaker exists for every scope with a capped budget")


def approve(connection: Connection, breaker_id: int, actor: str, reason: str, now: datetime, policy: BreakerPolicy) -> Breaker:
    """Review a degraded breaker (re-closes it), or sign an open one's re-close at the end of its period."""
    return fold(connection, breaker_id, Approve(actor, reason), now, policy)


def enforce(
    connection: Connection,
    breaker_id: int,
    actor: str,
    reason: str,
    now: datetime,
    policy: BreakerPolicy,
    *,
    read_shadow_report: bool = False,
) -> Breaker:
    """Arm tier 3. Needs a capped budget, and 7 days in shadow or ``read_shadow_report`` (the person says they read it)."""
    scope = _locked(connection, breaker_id).scope
    has_cap = any(str(b.budget.scope) == scope and b.budget.cap for b in list_budgets(connection))
    signal = Enforce(actor, reason, "cap", has_cap=has_cap, read_shadow_report=read_shadow_report)
    return fold(connection, breaker_id, signal, now, policy)


def shadow(connection: Connection, breaker_id: int, actor: str, reason: str, now: datetime, policy: BreakerPolicy) -> Breaker:
    """Disarm: the breaker decides and records on, and refuses nothing."""
    return fold(connection, breaker_id, Shadow(actor, reason), now, policy)


def reset(
    connection: Connection,
    breaker_id: int,
    actor: str,
    reason: str,
    allowance: AllowanceRequest | None,
    now: datetime,
    policy: BreakerPolicy,
    spend: BudgetSpend,
) -> Breaker:
    """Re-close an open breaker with a reason and an allowance, which is written with it. Raises Refused without either."""
    before = _locked(connection, breaker_id)
    if before.phase != "open" or before.trip is None or allowance is None or allowance == AllowanceRequest():
        return fold(connection, breaker_id, Reset(actor, reason, None, None), now, policy)
    budget = find_budget(connection, parse_scope(before.scope), before.trip.period)
    if budget is None or budget.budget.cap is None:
        raise Conflict(
            f"the {before.trip.period} budget that opened this breaker has no cap any more",
            hint="set its cap again, or put the breaker into shadow",
        )
    granted = _granted(connection, budget, allowance, now)
    after = fold(connection, breaker_id, Reset(actor, reason, granted, spend(connection, budget.budget, now)), now, policy)
    _write_allowance(connection, budget, granted, actor, reason, now)
    return after


def _granted(connection: Connection, stored: StoredBudget, request: AllowanceRequest, now: datetime) -> Allowance:
    budget, currency = stored.budget, stored.budget.amount.currency
    if request.new_cap is not None and request.extra is not None:
        raise Refused("an allowance is a new cap or an extra amount, not both")
    value, name = (request.new_cap, "new_cap") if request.new_cap is not None else (request.extra, "extra")
    if value is None or not value.is_finite() or value <= 0:
        raise BadInput("must be an amount above zero", field=name, value=value)
    increases = [
        i.increase for i in list_cap_increases(connection, now) if (i.scope, i.period) == (str(budget.scope), budget.period)
    ]
    cap = Money(value, currency) if request.new_cap is not None else budget.cap
    after = effective_cap(cap, increases, now)
    assert after is not None
    if request.new_cap is not None:
        return Allowance(after, new_cap=Money(value, currency))
    extra = Money(value, currency)
    return Allowance(after + extra, extra=extra, until=request.until)


def _write_allowance(
    connection: Connection, stored: StoredBudget, granted: Allowance, actor: str, reason: str, now: datetime
) -> None:
    budget, detail = (
        stored.budget,
        {"period": stored.budget.period, "reason": reason, "cap_after": plain(granted.cap_after.amount)},
    )
    if granted.new_cap is not None:
        put_budget(connection, replace(budget, cap=granted.new_cap), actor, now)
        detail["new_cap"] = plain(granted.new_cap.amount)
    elif granted.extra is not None and granted.until is not None:
        add_cap_increase(connection, budget.scope, budget.period, CapIncrease(granted.extra, now, granted.until, actor, reason))
        detail |= {"extra": plain(granted.extra.amount), "until": rfc3339(granted.until)}
    append_audit(connection, now, actor, "budget.allowance", str(budget.scope), detail)


def pause_all(
    connection: Connection, actor: str, reason: str, until: datetime | None, now: datetime, policy: BreakerPolicy
) -> list[Breaker]:
    """Break-glass from the centre: guards pass everything, standing limits too, until ``until``; None ends a running pause.

    The platform's breaker (made if need be) carries the pause for limits and for breakers made while it lasts.
    """
    ensure_breaker(connection, PLATFORM, now, now + policy.quiet_start)
    ids = [b.id for b in list_breakers(connection) if until is not None or b.paused(now)]
    if not ids:
        raise Conflict("nothing is paused")
    return [fold(connection, breaker_id, Pause(actor, reason, until), now, policy) for breaker_id in ids]
