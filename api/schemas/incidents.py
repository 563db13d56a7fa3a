"""Incidents: their rows, their whole story, and what a person does to them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schemas.types import PRINTABLE, AmountOut, Reason, Time

PersonIn = Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=PRINTABLE, strip_whitespace=True)]


class MoneyOut(BaseModel):
    amount: AmountOut
    currency: str


class IncidentTripOut(BaseModel):
    period: str
    period_end: Time
    spend: AmountOut
    cap: AmountOut
    currency: str


class IncidentOut(BaseModel):
    id: int
    scope: str
    cause: str = Field(description="`breaker`, or the name of what found it.")
    severity: Literal["notice", "warning", "page"] = Field(description="The highest of the episode.")
    phase: str
    shadow: bool = Field(description="Decided and not acted on.")
    is_open: bool
    opened_at: Time
    recovered_at: Time | None
    reason: str
    owner: str
    assignee: str
    acknowledged_by: str
    acknowledged_at: Time | None
    breaker_id: int | None
    at_risk: MoneyOut | None = Field(description="Money at risk; null: not known.")
    trip: IncidentTripOut | None = Field(description="What opened the breaker.")
    overshoot: MoneyOut | None = Field(description="Spent in the tripped period after the trip; null with `overshoot_reason`.")
    overshoot_reason: str
    outcome: str


class MomentOut(BaseModel):
    seq: int
    at: Time
    kind: str
    actor: str
    reason: str
    phase: str
    severity: str
    shadow: bool
    epoch: int | None


class SentOut(BaseModel):
    id: int
    key: str = Field(description="Its idempotency key.")
    kind: str
    state: str = Field(description="pending, done or failed.")
    attempts: int
    created_at: Time
    done_at: Time | None
    last_error: str


class TicketOut(BaseModel):
    channel: str
    external_id: str = Field(description="An issue's key, or a thread's timestamp.")
    url: str
    status: str
    assignee: str


class IncidentsOut(BaseModel):
    incidents: list[IncidentOut] = Field(description="Newest first.")


class StoryOut(BaseModel):
    incident: IncidentOut
    moments: list[MomentOut] = Field(description="From the beginning.")
    sent: list[SentOut] = Field(description="Messages and actions, oldest first.")
    people: list[str] = Field(description="Who acted on it.")
    tickets: list[TicketOut] = Field(description="Tickets and threads, as last read back.")


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NoteIn(_In):
    reason: Reason


class AssignIn(_In):
    assignee: PersonIn
    reason: Reason
