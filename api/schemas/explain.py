"""Why one period cost more or less than another."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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


class AmountsOut(BaseModel):
    before: AmountOut
    after: AmountOut
    change: AmountOut


class BucketOut(BaseModel):
    bucket: str = Field(description="A bucket of docs/bills.md.", examples=["tax"])
    billed: AmountsOut
    effective: AmountsOut
    text: str


class MachineTypeOut(AmountsOut):
    """Effective cost of machine time."""

    instance_type: str
    effects: dict[str, AmountOut]


class CommitmentOut(BaseModel):
    commitment_id: str
    hours_before: AmountOut = Field(description="Machine hours it covered.")
    hours_after: AmountOut


class HeldOut(BaseModel):
    """From the bill down to the ledger, effective cost: held + by_rates = cost, and cost is explained in `totals`."""

    held: AmountsOut = Field(description="Machines' money in closed quarter hours.")
    not_held: AmountsOut = Field(description="Machines' money in none: unassigned, not closed yet, used in another month.")
    by_rates: AmountsOut = Field(description="Ledger cost priced by rates: no bill came for it.")
    cost: AmountsOut = Field(description="Ledger cost of the periods.")


class BillTotalOut(BaseModel):
    """The bills in one currency; the buckets add up to them on both bases."""

    currency: str
    billed: AmountsOut
    effective: AmountsOut
    buckets: list[BucketOut]
    machine_effects: list[EffectOut] = Field(description="Of the effective change of machine time (gpu, other_compute).")
    machine_types: list[MachineTypeOut]
    commitments: list[CommitmentOut] = Field(description="Those whose covered hours differ.")
    bill_only: list[BucketOut] = Field(description="What no machine of the inventory explains.")
    ledger: HeldOut
    difference: AmountOut = Field(description="Change of machine time less its effects: 0.")


class SpanOut(BaseModel):
    """UTC days, half-open."""

    model_config = ConfigDict(populate_by_name=True)

    from_: date = Field(alias="from")
    to: date


class BillOut(BaseModel):
    view: Literal["invoice", "usage"] = Field(description="Whole months are compared by invoice, anything else by day of use.")
    first_days: SpanOut
    second_days: SpanOut
    reason: str = Field(description="Why there is no total; empty where there is.")
    totals: list[BillTotalOut]


class ExplainOut(BaseModel):
    first: PeriodOut
    second: PeriodOut
    totals: list[TotalOut]
    prices: list[PriceOut] = Field(description="The cause `rate` by the GPU types of deployments of both periods.")
    by: By
    rows: list[MoverOut]
    total_rows: int
    unpriced: list[UnpricedOut] = Field(description="Closed quarter hours without a price: in no sum.")
    bill: BillOut = Field(description="The level above the ledger: change of the bills in force.")
    bill_only: BillOnlyOut = Field(description="Effective change of charges that no machine of the inventory explains.")
    meta: Meta
