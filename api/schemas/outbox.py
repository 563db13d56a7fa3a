"""The outbox: messages and actions, and what became of them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.types import Reason, Time


class EffectOut(BaseModel):
    id: int
    key: str = Field(description="Its idempotency key.")
    kind: str
    state: str = Field(description="pending, done or failed (given up).")
    attempts: int
    created_at: Time
    next_at: Time
    done_at: Time | None
    last_error: str


class EffectsOut(BaseModel):
    effects: list[EffectOut] = Field(description="Newest first.")


class ResendIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: Reason


class ResentOut(BaseModel):
    id: int
    key: str
    kind: str
    last_error: str
