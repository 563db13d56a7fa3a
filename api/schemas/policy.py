"""The policy document and a guard's report."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.types import Name, Time

Count = Annotated[int, Field(ge=0, le=10**12)]


class Signature(BaseModel):
    key_id: str
    hmac_sha256: str = Field(description="Lower-case hex HMAC-SHA256 of the body's UTF-8 bytes as sent.")


class PolicyDocument(BaseModel):
    """`body` is canonical JSON text; see docs/contracts.md for its entries. A guard verifies the text, never re-serialises it."""

    body: str
    signatures: list[Signature] = Field(min_length=1, max_length=2)


class GuardEntryCount(BaseModel):
    """What one policy entry did to how many requests."""

    model_config = ConfigDict(extra="allow")

    entry: Name
    what: Name = Field(examples=["refused", "would_refuse"])
    requests: Count
    breaker: Count = 0
    epoch: Count = 0


class GuardReportIn(BaseModel):
    """Counts since the last report. Fields of a newer guard are taken along."""

    model_config = ConfigDict(extra="allow")

    policy_version: Annotated[int, Field(ge=0, le=2**62)] | None = None
    since: Time | None = None
    passed: Count = 0
    refused: Count = 0
    shadow_refused: Count = Field(0, description="Would have been refused by an entry in shadow.")
    dropped: Count = Field(0, description="Usage records lost by the sender; to be repaired from the spend log.")
    expired: bool = Field(False, description="The policy ran out and the guard follows its on_expiry.")
    break_glass: dict[str, Any] | None = Field(None, description="The local file {until, reason} in force.")
    rules_version: Annotated[int, Field(ge=0, le=2**31)] | None = Field(None, description="Of the identity rules it applies.")
    rules_fault: Name = Field("", description="Why it goes on with former identity rules: the newest hold what it does not know.")
    entries: list[GuardEntryCount] = Field(default_factory=list, max_length=1000)
    note: Name = ""


class GuardReportOut(BaseModel):
    audited: bool = Field(description="Whether the report was noteworthy enough for the audit trail.")
