"""Why one period cost more or less than another."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from api.schemas.meta import Meta
from api.schemas.types import AmountOut, Currency, Time

By = Literal["tenant", "deployment", "model"]


class PeriodOut(BaseModel):
    """Half-open."""

    window_start: Time
    window_end: Time
    closed_until: Time | None = Field(description="End of its last closed quarter hour; what is not closed is in no sum.")


class Moved(BaseModel):
    currency: Currency
    before: AmountOut
    after: AmountOut
    change: AmountOut
    change_percent: AmountOut | None
    reasons: dict[str, str]


class EffectOut(BaseModel):
    effect: str = Field(description="A cause of docs/explain.md.", examples=["rate"])
    amount: AmountOut
    text: str = Field(description="What changed, in plain words.")


class TotalOut(Moved):
    """Of all deployments with cost in this currency."""

    effects: list[EffectOut] = Field(description="Causes that are not zero; they add up to the change exactly.")
    node_hours: AmountOut = Field(description="Volume, mix, cache, speed, waste, unattributed, idle and starting together.")
    scale: AmountOut = Field(description="The node-hours without starting/unserved.")
    difference: AmountOut = Field(description="Change less the causes: 0.")


class PriceOut(BaseModel):
    gpu_type: str
    currency: Currency
    amount: AmountOut = Field(description="Part of the cause `rate`.")
    price_source_before: list[str]
    price_source_after: list[str]


class MoverOut(Moved):
    """One tenant, deployment or model, as `by` asked for; most moved first."""

    tenant: str | None = Field(None, description="Organisation/team, cost with idle time borne by the work.")
    deployment: str | None = None
    model: str | None = None
    effects: dict[str, AmountOut] = Field(description="Causes; none by tenant.")


class UnpricedOut(BaseModel):
    period: Literal["first", "second"]
    deployment: str
    windows: int
    reason: str


class BillOnlyOut(BaseModel):
    amount: AmountOut | None
    reason: str


class ExplainOut(BaseModel):
    first: PeriodOut
    second: PeriodOut
    totals: list[TotalOut]
    prices: list[PriceOut] = Field(description="The cause `rate` by the GPU types of deployments of both periods.")
    by: By
    rows: list[MoverOut]
    total_rows: int
    unpriced: list[UnpricedOut] = Field(description="Closed quarter hours without a price: in no sum.")
    bill_only: BillOnlyOut = Field(description="Charges that no usage explains.")
    meta: Meta
