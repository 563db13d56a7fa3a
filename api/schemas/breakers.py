"""Breakers, their events, and what a person does to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.schemas.types import AmountIn, AmountOut, Currency, Reason, Time

Phase = Literal["closed", "warned", "degraded", "open"]


class BreakerEventOut(BaseModel):
    epoch: int
    at: Time
    from_phase: str
    to_phase: str
    shadow: bool
    actor: str
    reason: str
    detail: dict[str, Any]


class TripOut(BaseModel):
    period: str
    period_end: Time
    spend: AmountOut
    cap: AmountOut
    currency: str


class BreakerOut(BaseModel):
    id: int
    scope: str
    phase: Phase
    tier: int = Field(description="0 closed, 1 warned, 2 degraded, 3 open.")
    epoch: int
    enforced: bool = Field(description="False: shadow, it decides and does not act.")
    since: Time
    reason: str
    paused_until: Time | None
    refusing: bool = Field(description="Guards are told to refuse: open, enforced and not paused.")
    held: bool = Field(description="The blast limit holds back a trip.")
    presigned_by: str | None = Field(description="Who signed its re-close at the period's end beforehand.")
    trip: TripOut | None = Field(description="What opened it.")


class BreakersOut(BaseModel):
    breakers: list[BreakerOut]


class BreakerEventsOut(BaseModel):
    events: list[BreakerEventOut] = Field(description="Newest first.")


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ActionIn(_In):
    reason: Reason


class AllowanceIn(_In):
    """What may be spent after re-closing: a new cap, or +extra until a time. One of the two."""

    new_cap: AmountIn | None = None
    extra: AmountIn | None = None
    until: Time | None = None
    currency: Currency | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> AllowanceIn:
        if (self.new_cap is None) == (self.extra is None):
            raise ValueError("give either new_cap, or extra with until")
        if (self.extra is None) != (self.until is None):
            raise ValueError("extra and until go together")
        return self


class ResetIn(_In):
    reason: Reason
    allowance: AllowanceIn | None = Field(None, description="Left out, the reset is refused (422).")


class PauseIn(_In):
    """Every breaker lets everything pass until then; break-glass from the centre."""

    until: Time | None = Field(None, description="Left out: ends a running pause.")
    reason: Reason


class EnforceIn(_In):
    reason: Reason
    shadow_report_read: Annotated[bool, Field(description="The person read what the breaker would have refused.")] = False


class PausedOut(BaseModel):
    changed: int = Field(description="Number of breakers it changed.")
    until: Time | None
