"""Budgets, cap increases, exemptions and standing limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.types import AmountIn, AmountOut, CostBasis, Currency, Mode, Name, Period, Reason, ScopeText, Time

LimitName = Literal["max_prompt_tokens", "max_output_tokens", "max_concurrent_long", "tokens_per_min"]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BudgetIn(_In):
    """One budget per (scope, period): sending it again replaces it by a new version; the same again changes nothing."""

    scope: ScopeText
    period: Period
    amount: AmountIn
    cap: AmountIn | None = Field(None, description="Hard limit that tier 3 guards; left out: none.")
    currency: Currency | None = Field(None, description="Left out: the reporting currency.")
    cost_basis: CostBasis | None = Field(None, description="Left out: allocation for organisations and deployments, else usage.")
    zone: Name | None = Field(None, description="Of its periods; left out: the reporting zone.", examples=["Asia/Shanghai"])
    owner: Name = ""
    fiscal_start: int = Field(1, ge=1, le=12, description="Month in which years begin, and quarters are counted from.")
    rollover: bool = Field(False, description="What the period before left of its amount is added, once.")


class CapIncreaseIn(_In):
    """More cap until a time, with the name of who approved it."""

    scope: ScopeText
    period: Period
    extra: AmountIn
    currency: Currency | None = None
    expires_at: Time
    approver: Annotated[Name, Field(min_length=1)]
    reason: Reason


class ExemptionIn(_In):
    """No breaker refuses this scope until it expires."""

    scope: ScopeText
    owner: Annotated[Name, Field(min_length=1)]
    reason: Reason
    expires_at: Time


class LimitIn(_In):
    """One standing limit per (scope, name)."""

    scope: ScopeText
    name: LimitName
    value: Annotated[int, Field(ge=1, le=2**53)]
    mode: Mode = "warn"


class Changed(BaseModel):
    """What a change did."""

    id: int
    changed: bool = Field(True, description="False: it stood so already.")
    warnings: list[str] = Field(default_factory=list, description="For example a scope no record was ever seen of.")


class SpendOut(BaseModel):
    """Spend of a budget's running period on its cost basis."""

    amount: AmountOut | None = Field(description="closed + running; null: a price is unknown, see `reason`.")
    closed: AmountOut | None = Field(description="From closed ledger windows.")
    running: AmountOut | None = Field(description="Estimate for windows not closed yet.")
    trueup: AmountOut | None = Field(description="Of closed: what bills say less what rates had said. Caps leave it out.")
    reason: str = Field(description="Why the amount is null, or what is missing from it (it is then a lower bound).")
    state: Literal["estimate", "provisional"]


class BudgetOut(BaseModel):
    id: int
    scope: str
    period: Period
    version: int
    zone: str
    amount: AmountOut
    cap: AmountOut | None
    effective_cap: AmountOut | None = Field(description="The cap plus increases in force now.")
    currency: str
    cost_basis: CostBasis
    owner: str
    fiscal_start: int
    rollover: bool
    carried: AmountOut | None = Field(description="From the period before; null: not known, see `carried_reason`.")
    carried_reason: str
    plan: AmountOut = Field(description="amount + carried: shares, pace and burn are of it.")
    window_start: Time
    window_end: Time
    spend: SpendOut
    spent_share: str | None = Field(description="spend / plan as a decimal.")
    expected_share: str = Field(description="Part of the amount the plan expects by now.")
    pace: str | None = Field(description="spent_share / expected_share: above 1 spends ahead of plan; null with `pace_reason`.")
    pace_reason: str
    profile_weeks: int | None = Field(
        description="Weeks of own history that say which hours of the week spend how much; null: every hour is expected alike."
    )
    profile_reason: str
    burn: str | None = Field(description="Spend of the last hour / what the plan expects of it; null with `burn_reason`.")
    burn_reason: str
    exhausted_at: Time | None = Field(description="When the amount runs out at the speed of the last hour; null with a reason.")
    exhausted_in_s: int | None
    exhaustion_reason: str
    cap_exhausted_at: Time | None
    cap_exhaustion_reason: str
    as_of: Time = Field(description="When the spend was measured; shares, pace and burn are as of then.")
    live: bool = Field(description="Measured for this answer; false: kept by the control loop, at most two of its rounds old.")


class BudgetsOut(BaseModel):
    budgets: list[BudgetOut]
    as_of: Time = Field(description="The oldest of the budgets' own.")
    freshness: Time | None


class TreeRowOut(BaseModel):
    """A budget in the tree. Siblings stand under the nearest budget above them with the same calendar and currency."""

    id: int
    parent: int | None = Field(description="The id of the budget it stands under; null: none.")
    depth: int
    scope: str
    period: Period
    cost_basis: CostBasis
    amount: AmountOut
    currency: str
    spend: AmountOut | None = Field(description="Of the running period; null: not known.")
    children: int
    children_amount: AmountOut | None = Field(description="Sum of the children's amounts; null: no children.")
    unassigned: AmountOut | None = Field(description="amount - children_amount; below zero: more was promised than there is.")
    unbudgeted_spend: AmountOut | None = Field(description="Spend outside the children's scopes; null with a reason.")
    unbudgeted_reason: str


class ForecastRowOut(BaseModel):
    """A forecast of a budget's running period from its own closed hours, at provisional rates; made about hourly."""

    id: int
    scope: str
    period: Period
    currency: str
    amount: AmountOut
    period_end: Time
    as_of: Time | None = Field(description="The last closed hour it rests on; null: no forecast, see `reason`.")
    total: AmountOut | None = Field(description="What the whole period is forecast to cost.")
    low: AmountOut | None = Field(description="Lower end of the 80 % interval; null: too little history, see `reason`.")
    high: AmountOut | None
    exhausted_at: Time | None = Field(description="When the amount is reached; null: not within the period.")
    earliest: Time | None = Field(description="The same at the interval's upper end.")
    latest: Time | None = Field(description="The same at the interval's lower end.")
    method: str | None
    origins: int | None = Field(description="Past forecasts the method was chosen and the interval calibrated by.")
    wape: str | None = Field(description="Error of those: sum of absolute errors / sum of what came.")
    reason: str


class ForecastsOut(BaseModel):
    rows: list[ForecastRowOut]


class TreeOut(BaseModel):
    rows: list[TreeRowOut]
    as_of: Time
    freshness: Time | None


class ExemptionOut(BaseModel):
    id: int
    scope: str
    owner: str
    reason: str
    created_at: Time
    expires_at: Time


class ExemptionsOut(BaseModel):
    exemptions: list[ExemptionOut]


class LimitOut(BaseModel):
    id: int
    scope: str
    name: str
    value: int
    mode: Mode
    updated_by: str
    updated_at: Time


class LimitsOut(BaseModel):
    limits: list[LimitOut]
