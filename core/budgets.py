"""Budgets: a plan (*amount*) for pace and alerts and, only where a person typed one, a hard limit (*cap*) for tier 3.

Periods are calendar days, ISO weeks, months, quarters or years in a named zone; shares of a period use true hours (a day may
have 23 or 25).
Nothing here forecasts: time to exhaustion continues the spending actually seen. An undefined figure is None with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Literal

from core.errors import BadInput, CurrencyMismatch
from core.money import CONTEXT, ZERO, Money
from core.scopes import Scope
from core.windows import PERIODS, Period, Window, period_window, require_utc, zone

CostBasis = Literal["allocation", "usage"]
HOURS_OF_WEEK = 168
HOUR = timedelta(hours=1)
TRIP_SHARE = Decimal("0.95")
"""Share of the effective cap at which tier 3 trips by default (policy data, see ``core.breaker.BreakerPolicy``)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio that may be undefined: then ``value`` is None and ``reason`` says why."""

    value: Decimal | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """``amount`` is the plan; ``cap`` the hard limit or None. ``fiscal_start``: the month in which quarters and years begin.
    ``rollover``: what the period before left of its amount is added, once. Raises BadInput naming the field that cannot be
    taken."""

    scope: Scope
    period: Period
    zone: str
    amount: Money
    cost_basis: CostBasis
    cap: Money | None = None
    owner: str = ""
    fiscal_start: int = 1
    rollover: bool = False

    def __post_init__(self) -> None:
        zone(self.zone)
        if self.period not in PERIODS:
            raise BadInput("unknown period", field="period", value=self.period, hint=f"use {', '.join(PERIODS)}")
        self._check_fiscal_start()
        if self.cost_basis not in ("allocation", "usage"):
            raise BadInput("must be allocation or usage", field="cost_basis", value=self.cost_basis)
        if self.amount.amount <= 0:
            raise BadInput("must be above zero", field="amount", value=self.amount.amount)
        if self.cap is not None and self.cap.amount <= 0:
            raise BadInput("must be above zero", field="cap", value=self.cap.amount, hint="leave the cap out for none")
        if self.cap is not None and self.cap.currency != self.amount.currency:
            raise CurrencyMismatch("the cap must be in the amount's currency", field="cap", value=self.cap.currency)
        if self.scope.kind == "platform" and not self.owner:
            raise BadInput("a platform budget needs an owner", field="owner", value=self.owner)

    def window(self, at: datetime) -> Window:
        """The running period at ``at``, as UTC instants."""
        return period_window(self.period, at, self.zone, self.fiscal_start)

    def window_before(self, at: datetime) -> Window:
        """The period before the one running at ``at``."""
        return self.window(self.window(at).start - timedelta(microseconds=1))

    def _check_fiscal_start(self) -> None:
        if not 1 <= self.fiscal_start <= 12:
            raise BadInput("must be a month from 1 to 12", field="fiscal_start", value=self.fiscal_start)
        if self.fiscal_start != 1 and self.period not in ("quarter", "year"):
            raise BadInput("only quarters and years begin in a month", field="fiscal_start", value=self.fiscal_start)


@dataclass(frozen=True, slots=True)
class CapIncrease:
    """A temporary raise of a cap, in force in [starts_at, expires_at)."""

    extra: Money
    starts_at: datetime
    expires_at: datetime
    approver: str
    reason: str

    def __post_init__(self) -> None:
        if self.extra.amount <= 0:
            raise BadInput("must be above zero", field="extra", value=self.extra.amount)
        if require_utc(self.expires_at, "expires_at") <= require_utc(self.starts_at, "starts_at"):
            raise BadInput("must be after it starts", field="expires_at", value=self.expires_at.isoformat())
        for name, value in (("approver", self.approver), ("reason", self.reason)):
            if not value.strip():
                raise BadInput("must not be empty", field=name, value=value)


@dataclass(frozen=True, slots=True)
class Carried:
    """What a budget with rollover brings from the period before. None: not known, so nothing is added; ``reason`` says why."""

    amount: Money | None
    reason: str = ""


def carry_over(budget: Budget, before: Money | None, spent: Money | None, missing: str = "") -> Carried:
    """What ``spent`` left of ``before``, the amount that ruled when the period before ended; never less than nothing. What that
    period had itself brought along is not carried on. ``missing`` from the spend: the rest is not known."""
    nothing = Money(ZERO, budget.amount.currency)
    if not budget.rollover:
        return Carried(nothing)
    if before is None:
        return Carried(nothing, "no budget ruled when the period before ended")
    if spent is None or missing or {before.currency, spent.currency} != {budget.amount.currency}:
        return Carried(None, missing or "what the period before cost is not known in the budget's currency")
    return Carried(max(before - spent, nothing, key=lambda money: money.amount))


def default_basis(scope: Scope) -> CostBasis:
    """Organisation, deployment and platform on allocation basis; team, project, user and service tier on usage basis."""
    if scope.kind == "service_tier" or (scope.kind == "tenant" and len(scope.parts) > 1):
        return "usage"
    return "allocation"


def effective_cap(cap: Money | None, increases: Sequence[CapIncrease], at: datetime) -> Money | None:
    """The cap plus the increases in force at ``at``; None where nobody typed a cap."""
    if cap is None:
        return None
    for increase in increases:
        if increase.starts_at <= at < increase.expires_at:
            cap = cap + increase.extra
    return cap


@dataclass(frozen=True, slots=True)
class HourProfile:
    """Expected spending by local hour of the week: 168 weights, Monday 00:00 first. Only their proportions matter."""

    weights: tuple[Decimal, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != HOURS_OF_WEEK or any(w < 0 for w in self.weights) or not any(self.weights):
            raise BadInput(f"needs {HOURS_OF_WEEK} weights that are not negative and not all zero", field="weights")


def expected_share(window: Window, at: datetime, zone_name: str, profile: HourProfile | None = None) -> Decimal:
    """The part of a period's spending expected by ``at``, 0 to 1. Without a profile: elapsed time over true length."""
    at = min(max(at, window.start), window.end)
    with localcontext(CONTEXT):
        if profile is None:
            return Decimal((at - window.start) // timedelta(microseconds=1)) / (window.duration // timedelta(microseconds=1))
        sums = _cumulative(window, zone_name, profile)
        if not sums[-1]:
            return expected_share(window, at, zone_name)
        whole, rest = divmod(at - window.start, HOUR)
        step = min(HOUR, window.end - (at - rest)) or HOUR
        part = Decimal(rest // timedelta(microseconds=1)) / (step // timedelta(microseconds=1))
        reached = sums[whole]
        following = sums[min(whole + 1, len(sums) - 1)]
        return (reached + (following - reached) * part) / sums[-1]


@lru_cache(maxsize=512)
def _cumulative(window: Window, zone_name: str, profile: HourProfile) -> tuple[Decimal, ...]:
    sums, at, tz = [ZERO], window.start, zone(zone_name)
    while at < window.end:
        local = at.astimezone(tz)
        minutes = min(window.end - at, HOUR) // timedelta(minutes=1)
        sums.append(sums[-1] + profile.weights[local.weekday() * 24 + local.hour] * minutes)
        at += HOUR
    return tuple(sums)


@dataclass(frozen=True, slots=True)
class Pace:
    """``spent_share`` of the amount against ``expected_share`` of the period; ``ratio`` above 1 spends ahead of plan."""

    spent_share: Figure
    expected_share: Decimal
    ratio: Figure


def pace(budget: Budget, spend: Money | None, at: datetime, profile: HourProfile | None = None) -> Pace:
    """How spending stands to the plan at ``at``. Unknown spend gives undefined figures, never zero."""
    expected = expected_share(budget.window(at), at, budget.zone, profile)
    spent = share(spend, budget.amount)
    if spent.value is None:
        return Pace(spent, expected, spent)
    if not expected:
        return Pace(spent, expected, Figure(None, "nothing is expected of the period so far"))
    with localcontext(CONTEXT):
        return Pace(spent, expected, Figure(spent.value / expected))


def share(part: Money | None, whole: Money | None) -> Figure:
    """part / whole in one currency. Raises CurrencyMismatch when they differ."""
    if part is None:
        return Figure(None, "spend is unknown")
    if whole is None:
        return Figure(None, "no cap was set")
    if part.currency != whole.currency:
        raise CurrencyMismatch(f"spend is in {part.currency}, the limit in {whole.currency}", hint="import an exchange rate")
    with localcontext(CONTEXT):
        return Figure(part.amount / whole.amount)


def burn_rate(budget: Budget, spent: Money | None, window: Window, profile: HourProfile | None = None) -> Figure:
    """Spending in ``window`` over what the plan expects of exactly that time (1 = on plan; 3 over 1 h and 5 min pages).

    A window across a period's border expects the sum of both periods' parts.
    """
    expected, at = ZERO, window.start
    while at < window.end:
        period = budget.window(at)
        until = min(period.end, window.end)
        with localcontext(CONTEXT):
            expected += expected_share(period, until, budget.zone, profile) - expected_share(period, at, budget.zone, profile)
        at = until
    spent_share = share(spent, budget.amount)
    if spent_share.value is None:
        return spent_share
    if expected <= 0:
        return Figure(None, "nothing is expected of this window")
    with localcontext(CONTEXT):
        return Figure(spent_share.value / expected)


@dataclass(frozen=True, slots=True)
class Exhaustion:
    """When spending at its recent speed reaches the limit: ``at`` and ``left``; None with a reason where it does not."""

    at: datetime | None
    left: timedelta | None
    reason: str = ""


def time_to_exhaustion(
    spend: Money | None, limit: Money | None, recent: Money | None, recent_span: timedelta, period_end: datetime, at: datetime
) -> Exhaustion:
    """Continue the speed of ``recent`` (spent in the last ``recent_span``) until ``limit`` or the period's end."""
    used = share(spend, limit)
    if spend is None or limit is None or used.value is None:
        return Exhaustion(None, None, used.reason)
    if used.value >= 1:
        return Exhaustion(at, timedelta(0), "the limit is reached")
    if share(recent, limit).value is None or recent is None:
        return Exhaustion(None, None, "recent spend is unknown")
    if recent.amount <= 0:
        return Exhaustion(None, None, "nothing was spent lately")
    with localcontext(CONTEXT):
        span_us = recent_span // timedelta(microseconds=1)
        left_us = int((limit - spend).amount * span_us / recent.amount)
    if left_us > (period_end - at) // timedelta(microseconds=1):
        return Exhaustion(None, None, "not within this period at the recent speed")
    left = timedelta(microseconds=left_us)
    return Exhaustion(at + left, left)
