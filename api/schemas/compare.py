"""Answers about own engines against vendors, and about tokens without a price."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from api.schemas.meta import Meta
from api.schemas.types import AmountOut, Currency, Time

By = Literal["model", "tenant"]
Share = Annotated[AmountOut | None, Field(description="A share, 1 is all; null: unknown, the reason is in `reasons`.")]
Price = Annotated[AmountOut | None, Field(description="Per million tokens; null: unknown.")]


class MixOut(BaseModel):
    """Tokens as the ledger counts them."""

    input: int
    input_cached: int
    output: int


class RowMeta(BaseModel):
    price_source: str | None
    utilisation_source: str | None
    state: str | None
    coverage: float | None


class CompareRow(BaseModel):
    """One model, or a tenant's use of it, beside one model of a vendor."""

    tenant: str | None = Field(None, description="Organisation/team; only by tenant.")
    model: str
    currency: Currency
    against: str | None = Field(description="VENDOR/MODEL; null: nobody said with which it compares.")
    tokens: MixOut
    own_cost: AmountOut = Field(description="With idle and starting time borne by the work (allocation basis).")
    own_used_cost: AmountOut = Field(description="Of the busy time alone (usage basis).")
    bought_cost: AmountOut | None = Field(description="The same tokens at the list prices then in force; null: unknown.")
    bought_currency: Currency | None
    own_allocation: Price
    own_usage: Price
    bought: Price
    times: AmountOut | None = Field(description="Own (allocation basis) over bought, divided last.")
    utilisation: Share
    break_even: Share = Field(
        description="Share of busy time from which on a token of one's own costs no more than the vendor's; above 1: never."
    )
    verdict: str
    price_list: str
    reasons: dict[str, str] = Field(description="Figure -> why it is null.")
    hint: str
    meta: RowMeta


class HardwareRow(BaseModel):
    """One model on one GPU type. Only what was measured has numbers."""

    model: str
    gpu_type: str
    gpu_hour: AmountOut | None
    currency: Currency | None
    price_source: str | None
    tokens_per_gpu_s: AmountOut | None = Field(description="Tokens a second and GPU while busy.")
    output_per_gpu_s: AmountOut | None
    utilisation: Share
    per_mtok_at_use: Price
    per_mtok_full: Price
    reason: str


class FieldRow(BaseModel):
    model: str
    gpu_type: str
    formula: str
    per_mtok: Price
    currency: Currency
    reason: str
    label: str = Field(description="Field estimate, not ledger.")


class FieldOut(BaseModel):
    label: str
    rows: list[FieldRow]


class CompareOut(BaseModel):
    by: By
    window_start: Time
    window_end: Time
    rows: list[CompareRow]
    total_rows: int
    hardware: list[HardwareRow]
    field: FieldOut = Field(description="The field's formulas on the same measurements, never mixed with the ledger.")
    meta: Meta


class UnpricedRow(BaseModel):
    """Tokens of closed quarter hours that no price covers."""

    vendor: str = Field(description="`self_hosted`: engines of one's own.")
    model: str
    sold: str = Field(description="standard, batch, flex, priority …")
    reason: str
    requests: int
    input_uncached: int
    input_cache_read: int
    input_cache_write_5m: int
    input_cache_write_1h: int
    output: int
    output_reasoning: int
    tenants: list[str]
    first_at: Time
    last_at: Time = Field(description="End of the last quarter hour, excluded.")
    hint: str = Field(description="What would fill it.")


class UnpricedOut(BaseModel):
    rows: list[UnpricedRow]
    total_rows: int
    tokens: int = Field(description="Of all rows, each token once.")
    meta: Meta
