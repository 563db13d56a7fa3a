"""Bills and their charges."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel, Field

from api.schemas.types import AmountOut, Time


class BillTotal(BaseModel):
    currency: str
    billed: str | None
    effective: str | None
    list: str | None = Field(None, description="null: not known of any charge.")
    contracted: str | None = None


class BillOut(BaseModel):
    """One version of a delivery: (source, export, billing period)."""

    source: str
    export: str
    billing_period: date = Field(description="First day of the issuer's period.")
    version: int
    format: str
    status: str = Field(description="current, superseded or refused.")
    reason: str
    rows: int
    totals: list[BillTotal]
    invoice_ids: list[str]
    is_final: bool = Field(description="Every charge with a billed cost names its invoice.")
    notes: list[str]
    received_at: Time
    superseded_at: Time | None


class BillsOut(BaseModel):
    bills: list[BillOut]
    total_rows: int


class ChargeAmounts(BaseModel):
    currency: str
    billed_cost: AmountOut | None
    effective_cost: AmountOut | None
    list_cost: AmountOut | None = Field(
        description="null: unknown; rows that buy what others use up, credits, refunds, discounts and taxes are left out."
    )
    contracted_cost: AmountOut | None
    effective_without_list: AmountOut | None = Field(description="Effective cost of what has no list price.")
    memo_cost: AmountOut | None = Field(description="Cost that stands in other rows (split rows), in no sum.")


class ChargeRow(ChargeAmounts):
    """Charges summed; the keys asked for by `by`, and always the currency."""

    keys: dict[str, str | None] = Field(description="Grouping key -> value.")
    rows: int
    hours: AmountOut | None = Field(description="Instance hours.")
    original: list[ChargeAmounts] | None = Field(None, description="With `in`: what the row is the sum of, by currency.")
    reason: str | None = Field(None, description="With `in`: why the row is still in its own currency; empty where it is not.")


class MissingRate(BaseModel):
    base: str
    quote: str
    day: date


class ChargesOut(BaseModel):
    rows: list[ChargeRow]
    total_rows: int
    currency: str | None = Field(None, description="The currency asked for by `in`.")
    missing: list[MissingRate] = Field(description="Rates that `in` would need: their money is in rows of its own.")
    rates: list[str] = Field(description="Rates that `in` used.")
