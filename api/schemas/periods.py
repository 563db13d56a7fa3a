"""Closed months and their statements."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.meta import Meta
from api.schemas.types import AmountOut, CostBasis, Currency, Reason, Time

MONTH = r"^2[01][0-9]{2}-(0[1-9]|1[0-2])$"
Idle = Literal["apart", "spread"]
States = dict[str, int]


class PeriodOut(BaseModel):
    """A month of the reporting zone whose statement stays as it was sent."""

    month: str = Field(examples=["2026-07"])
    closed_at: Time
    closed_by: str
    reason: str
    money: dict[str, AmountOut] = Field(description="Total of its statement by currency, allocation basis.")
    states: States = Field(description="Quarter hours by state when it was closed.")
    unpriced: int
    waiting: int = Field(description="Quarter hours that waited to be closed.")
    accepted: list[str]
    window_start: Time
    window_end: Time


class PeriodsOut(BaseModel):
    periods: list[PeriodOut]


class StatementRowOut(BaseModel):
    """One amount; beside these fields the keys asked for by `by`."""

    model_config = ConfigDict(extra="allow")

    section: Literal["own", "correction"]
    month: str = Field(description="Of the usage: a correction's is the closed month it corrects.")
    kind: str = Field(description="served, wasted, unattributed, idle, starting, shared or unassigned.")
    bearer: str = Field(description="ORG[/TEAM …], CLUSTER/NAMESPACE/MODEL, or platform.")
    currency: Currency
    amount: AmountOut
    why: str = Field(description="Of a correction: what changed.")


class StatementTotalOut(BaseModel):
    section: Literal["own", "corrections", "all"]
    currency: Currency
    amount: AmountOut


class NotSharedOut(BaseModel):
    """Charges of the month that no shared cost rule takes: on no row."""

    what: str
    currency: Currency
    amount: AmountOut


class StatementOut(BaseModel):
    month: str
    window_start: Time
    window_end: Time
    closed_at: Time | None = Field(description="null: the month is open, and its statement may change.")
    as_of: Time | None
    basis: CostBasis
    idle: Idle
    idle_words: str = Field(description="Who bears idle GPU time on this statement.")
    rows: list[StatementRowOut]
    total_rows: int
    totals: list[StatementTotalOut]
    not_shared: list[NotSharedOut]
    states: States = Field(description="Quarter hours by state: provisional, trued_up, final.")
    unpriced: int
    waiting: int
    kept_at: Time | None = Field(description="Since when shared and unassigned money stands as shown; null: as it is now.")
    meta: Meta


class PeriodCloseIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    month: str = Field(pattern=MONTH, examples=["2026-07"])
    reason: Reason
    accept: list[Literal["unpriced", "open"]] = Field(
        default=[], max_length=2, description="Close although quarter hours have no price, or wait to be closed."
    )
    dry_run: bool = False


class PeriodClosedOut(BaseModel):
    """What stands of the month; `closed_at` null: it was not closed (`dry_run`), `refusal` says what is in the way."""

    month: str
    window_start: Time
    window_end: Time
    closed_at: Time | None
    money: dict[str, AmountOut]
    states: States
    unpriced: int
    unpriced_reason: str
    waiting: int
    refusal: str
    accept: list[str] = Field(description="What would have to be accepted.")
