"""Answers about how engines and gateways are set."""

from __future__ import annotations

from pydantic import BaseModel, Field

from api.schemas.types import Time
from core.fleet_facts import SubjectKind, Verdict


class FleetCheckOut(BaseModel):
    subject: str = Field(description="Metrics address of an engine, URL of a gateway, or the source that could not be asked.")
    kind: SubjectKind
    check: str
    verdict: Verdict = Field(description="unknown: the value could not be read, or what it depends on; never taken for pass.")
    seen: str | None = Field(description="The value read; null: none.")
    where: str | None = Field(description="Where it was read; null: nowhere.")
    reason: str
    fix: str | None = Field(description="A line to paste; null: nothing to do.")
    what: str = Field(description="What the check wants.")
    why: str = Field(description="Why it costs money.")


class FleetChecksOut(BaseModel):
    rows: list[FleetCheckOut]
    total_rows: int
    counts: dict[Verdict, int] = Field(description="Over all rows of the newest round, whatever was asked for.")
    checked_at: Time | None = Field(description="When the round was made; null: none yet, or there was nothing to check.")
