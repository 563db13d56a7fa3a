"""What every number carries: how it came about and how whole it is."""

from __future__ import annotations

from pydantic import BaseModel, Field

from api.schemas.types import CostBasis, Currency, Time


class Meta(BaseModel):
    basis: CostBasis | None = None
    price_source: str | None = Field(None, description="Where the prices come from; null: none known.")
    utilisation_source: str | None = None
    weight_source: str | None = Field(None, description="fit, measured seconds, or a labelled last resort.")
    freshness: Time | None = Field(None, description="The stream has counted everything up to about here; null: never ran.")
    coverage: float | None = Field(None, description="Share of engine tokens that usage records explain; null: no engine data.")
    state: str | None = Field(None, description="estimate, provisional (by rates), trued_up (by bills) or final (by invoices).")
    unpriced_tokens: int | None = Field(None, description="Tokens without a price: they are in no cost (`GET /v1/unpriced`).")
    currency: Currency | None = None
    window_start: Time | None = None
    window_end: Time | None = None
