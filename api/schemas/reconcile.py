"""From an invoice's total to the tenants."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import BaseModel, Field

from api.schemas.meta import Meta
from api.schemas.types import AmountOut, Currency, Time

View = Literal["invoice", "usage"]


class WaterfallRow(BaseModel):
    """A step's whole (the first row), part, or difference."""

    step: str = Field(
        description="invoice, months, basis, machines, holders, ledger, lines, tenants or shared.", examples=["machines"]
    )
    bucket: str = Field(description="The part's name; in step `invoice` a bucket of docs/bills.md.", examples=["gpu"])
    parent: str = Field(description="The whole it is a part of; empty for the invoice's total.", examples=["invoice total"])
    billed_cost: AmountOut | None = Field(description="null: the step is on the effective basis alone.")
    effective_cost: AmountOut | None
    hint: str = Field(description="Why it is there, or what to do.")
    is_open: bool = Field(description="It waits for what the hint says.")
    is_difference: bool = Field(description="Nothing names it: a fault.")


class DeliveryOut(BaseModel):
    source: str
    export: str
    billing_period: dt.date
    version: int
    is_final: bool
    invoice_ids: list[str]
    received_at: Time


class WaterfallOut(BaseModel):
    """One currency. Each step's rows add up to their parent exactly."""

    billing_period: dt.date = Field(description="First day; in the usage view, of the month of use (UTC).")
    currency: Currency
    view: View
    state: Literal["provisional", "final"] = Field(description="final: every delivery names its invoice.")
    ledger_states: dict[str, int] = Field(description="Closed quarter hours by provisional, trued_up and final.")
    deliveries: list[DeliveryOut]
    received_at: Time | None = Field(description="When the newest of the deliveries was read.")
    rows: list[WaterfallRow]
    difference: AmountOut = Field(description="What no row names, without sign: 0, or something is wrong.")


class ReconcileOut(BaseModel):
    period: str | None = Field(description="The period shown; null: there is no bill.", examples=["2026-07"])
    periods: list[str] = Field(description="Every period that has a bill, oldest first.")
    waterfalls: list[WaterfallOut] = Field(description="One a currency.")
    meta: Meta
