"""Azure Cost Management exports, actual and amortised cost, of EA, MCA and pay-as-you-go accounts and their header spellings.

Actual cost shows a commitment when it is bought, amortised cost when it is used: each is the whole month, so one is never added
to the other. Both bases at once are in Azure's FOCUS export.
"""

from __future__ import annotations

import re
from typing import Literal

from ingest.billing.adapter import BillOptions, ChargePlan, ChargeSelect, Columns, RowCheck, currency_sql, json_text
from ingest.billing.sql import gpu_sql

COST = ("CostInBillingCurrency", "Cost", "PreTaxCost")
"""In the invoice's currency. MCA files also have costs in the pricing currency and in USD: those are not the invoice's."""
CURRENCY = ("BillingCurrency", "BillingCurrencyCode", "Currency")
DATES = ("Date", "UsageDateTime", "UsageDate")
UNUSED = "('UnusedReservation', 'UnusedSavingsPlan')"
COMMITTED = "('Reservation', 'SavingsPlan')"
_LOCAL = re.compile(r"\(([A-Za-z0-9]+)\)$")

NOTES = {
    "actual": "actual cost: commitments are charged when bought and not spread over what used them; "
    "Azure's FOCUS export (azure-focus) has both bases",
    "amortized": "amortised cost: purchases of commitments are not in this export, so its billed cost is less than the invoice; "
    "Azure's FOCUS export (azure-focus) has both bases",
}


class Azure:
    """``view``: which of the two exports the file is; a file of the other one is refused."""

    source = "azure"

    def __init__(self, view: Literal["actual", "amortized"]) -> None:
        self.view = view

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        known = english(columns)
        money = {"cost": known.require(*COST)}
        listed = known.find("PaygCostInBillingCurrency")
        if listed is not None:
            money["list"] = listed
        known.require(*DATES)
        quantity = known.find("Quantity", "UsageQuantity", "ConsumedQuantity")
        return ChargePlan(
            selects=(ChargeSelect(self._columns(known, options, listed is not None, quantity is not None)),),
            money=money,
            numbers={"quantity": quantity} if quantity else {},
            derived={
                "date": f"at_utc({known.text(*DATES)})",
                "type": known.text("ChargeType"),
                "committed": _committed(known),
                "instance": _instance(known),
            },
            checks=(
                RowCheck("m_cost IS NULL", COST[0], "the cost is missing", "a charge without a cost is not zero"),
                RowCheck(
                    "d_date IS NULL", DATES[0], "is no date that can be read", "expected MM/DD/YYYY or YYYY-MM-DD",
                    known.text(*DATES),
                ),
                self._other_view(),
            ),
            notes=(NOTES[self.view],),
        )  # fmt: skip

    def _other_view(self) -> RowCheck:
        if self.view == "actual":
            hint = "this is an amortised export: import it with --format azure-amortized"
            return RowCheck(f"d_type IN {UNUSED}", "ChargeType", "actual cost has no such lines", hint, "d_type")
        hint = "this is an actual cost export: import it with --format azure-actual"
        return RowCheck("d_type = 'Purchase' AND d_committed", "ChargeType", "amortised cost has no such lines", hint, "d_type")

    def _costs(self) -> dict[str, str]:
        if self.view == "actual":
            return {"billed": "m_cost", "effective": "m_cost"}
        return {"billed": f"CASE WHEN d_type IN {UNUSED} OR (d_type = 'Usage' AND d_committed) THEN 0 ELSE m_cost END",
                "effective": "m_cost"}  # fmt: skip

    def _columns(self, columns: Columns, options: BillOptions, listed: bool, quantified: bool) -> dict[str, str]:
        text = columns.text
        quantity = f"CASE WHEN {_kind()} = 'usage' THEN n_quantity END" if quantified else "NULL"
        unit, family = text("UnitOfMeasure"), _family(columns)
        running = f"{_kind()} = 'usage' AND {family} IN ('gpu', 'compute') AND contains(lower({unit}), 'hour')"
        return {
            **self._costs(),
            "provider": "'azure'",
            "invoice_issuer": "'Microsoft'",
            "billing_account": text("BillingAccountId", "BillingProfileId"),
            "account": text("SubscriptionId", "SubscriptionGuid"),
            "invoice_id": text("InvoiceId"),
            "billing_period": f"date_trunc('month', coalesce(at_utc({text('BillingPeriodStartDate')}), d_date))::DATE",
            "charge_start": "d_date",
            "charge_end": "d_date + INTERVAL 1 DAY",
            "service": text("MeterCategory", "ConsumedService"),
            "region": text("ResourceLocation", "Location", "MeterRegion"),
            "zone": text("AvailabilityZone"),
            "resource_id": text("ResourceId", "InstanceId", "InstanceName"),
            "instance_type": "d_instance",
            "sku": text("MeterId"),
            "meter": text("MeterName"),
            "operation": text("MeterSubCategory"),
            "description": text("ProductName", "Product"),
            "commitment_id": text("BenefitId", "ReservationId"),
            "charge_category": "CASE WHEN d_type IN ('Purchase', 'Tax') THEN d_type "
            "WHEN d_type = 'Refund' THEN 'Credit' WHEN d_type = 'RoundingAdjustment' THEN 'Adjustment' ELSE 'Usage' END",
            "kind": _kind(),
            "family": family,
            "pricing_category": text("PricingModel"),
            "currency": currency_sql(text(*CURRENCY), options),
            "list": "m_list" if listed else "NULL",
            "quantity": quantity,
            "hours": f"CASE WHEN {running} THEN n_quantity END" if quantified else "NULL",
            "unit": unit,
            "tags": json_text(_braced(text("Tags"))),
        }


def english(columns: Columns) -> Columns:
    """Localised headers carry the English name in brackets: ``Kategorie der Verbrauchseinheit (MeterCategory)``."""
    named = [(found[1], name) for header, name in columns.pairs if (found := _LOCAL.search(header)) is not None]
    return Columns([*columns.pairs, *named], columns.where)


def _braced(cell: str) -> str:
    """EA files write JSON objects without their braces."""
    return f"CASE WHEN starts_with(ltrim({cell}), '\"') THEN '{{' || {cell} || '}}' ELSE {cell} END"


def _kind() -> str:
    return (
        "CASE WHEN d_type IS NULL OR d_type = 'Usage' THEN 'usage' "
        "WHEN d_type = 'Purchase' THEN CASE WHEN d_committed THEN 'commitment_purchase' ELSE 'purchase' END "
        f"WHEN d_type IN {UNUSED} THEN 'commitment_unused' WHEN d_type = 'Refund' THEN 'refund' WHEN d_type = 'Tax' THEN 'tax' "
        "WHEN d_type = 'RoundingAdjustment' THEN 'adjustment' ELSE 'unknown' END"
    )


def _committed(columns: Columns) -> str:
    model, reservation = columns.text("PricingModel"), columns.text("ReservationId")
    return f"coalesce({model} IN {COMMITTED} OR ({model} IS NULL AND {reservation} IS NOT NULL), false)"


def _instance(columns: Columns) -> str:
    info = f"TRY_CAST({_braced(columns.text('AdditionalInfo'))} AS JSON)"
    machine = f"CASE WHEN {columns.text('MeterCategory')} = 'Virtual Machines' THEN {columns.text('MeterName')} END"
    return f"coalesce(nullif(json_extract_string({info}, '$.ServiceType'), ''), {machine})"


def _family(columns: Columns) -> str:
    category = columns.text("MeterCategory")
    named = f"lower(concat_ws(' ', {category}, {columns.text('MeterSubCategory')}, {columns.text('ProductName', 'Product')}))"
    machine = f"CASE WHEN {gpu_sql('d_instance', 'azure')} THEN 'gpu' ELSE 'compute' END"
    return (
        f"CASE WHEN {category} = 'Virtual Machines' THEN {machine} "
        f"WHEN regexp_matches({named}, 'openai|foundry models') THEN 'ai_api' "
        f"WHEN {category} IS NULL THEN 'unknown' ELSE 'other' END"
    )
