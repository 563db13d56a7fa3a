"""Rules, how they stand, what fired, and what a back-test says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schemas.types import AmountOut, Reason, Time

RuleName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Shown = Literal["OK", "WARNING", "ALERT", "NO_DATA"]
Severity = Literal["notice", "warning", "page"]


class RuleScopeOut(BaseModel):
    """A rule on one scope. Values are statistics in the metric's unit, not money to book."""

    scope: str
    state: Shown
    firing: bool
    since: Time | None = Field(description="Of the last firing or recovery.")
    judged_to: Time | None = Field(description="Up to when windows are judged.")
    value: float | None
    threshold: float | None
    usual: float | None
    reason: str


class RuleOut(BaseModel):
    name: str
    version: int
    made_by: str
    made_at: Time
    rule: dict[str, Any] = Field(description="As `tokenfuse rules export` writes it; POST takes the same.")
    unit: str
    metric_title: str
    scopes: list[RuleScopeOut]


class RulesOut(BaseModel):
    rules: list[RuleOut]


class RulesIn(BaseModel):
    """Rules that are new or differ are stored as new versions; others stay as they are."""

    model_config = ConfigDict(extra="forbid")

    rules: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=200)]


class RulesChanged(BaseModel):
    changed: list[str] = Field(description="Names of the rules that were stored.")


class AlertOut(BaseModel):
    """One firing of a rule on a scope."""

    id: int
    rule: str
    scope: str
    epoch: int
    severity: Severity
    tier: int
    shadow: bool = Field(description="Kept, and nobody was told.")
    window_start: Time = Field(description="Of the first window that fired.")
    fired_at: Time
    recovered_at: Time | None = Field(description="null: still firing.")
    value: float
    threshold: float
    usual: float | None
    reason: str
    at_risk: AmountOut | None = Field(description="Cost above the usual in windows that fired (estimate); null: not known.")
    currency: str
    why: dict[str, Any] = Field(
        description="Of a deployment's cost: `causes` (teams that explain half of the excess by their own work) and `tenants` "
        "(tenant, before, after, share); else empty."
    )
    person: str
    person_said: Literal["", "acknowledged", "ignored"]
    person_reason: str
    person_at: Time | None


class AlertsOut(BaseModel):
    alerts: list[AlertOut]


class AlertAnswerIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: Reason


class BacktestFiringOut(BaseModel):
    scope: str
    started_at: Time
    fired_at: Time
    ended_at: Time
    recovered: bool
    false: bool = Field(description="Touches no labelled incident.")
    value: float | None
    threshold: float | None
    at_risk: AmountOut | None
    currency: str
    tenants: list[str] = Field(description="Whom a breaker would have refused.")
    requests: int = Field(description="Theirs from the firing to the recovery.")


class BacktestOut(BaseModel):
    rule: str
    window_start: Time
    window_end: Time
    scopes: int
    windows: int
    no_data: int
    firings: list[BacktestFiringOut]
    false_trips_per_week: AmountOut = Field(description="On the worst scope.", examples=["0.5"])
    requests_refused: int
    tenants: list[str]
    offerable: bool = Field(description="May be offered for enforcement; else see `reason`.")
    reason: str
