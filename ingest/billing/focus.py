"""FOCUS 1.0 to 1.4 exports, whoever wrote them; columns later versions and vendors add stay in the lines."""

from __future__ import annotations

from ingest.billing.adapter import BillOptions, ChargePlan, ChargeSelect, Columns, RowCheck, currency_sql, json_text, time_checks
from ingest.billing.sql import gpu_sql, quoted, string

COSTS = {"billed": "BilledCost", "effective": "EffectiveCost", "list": "ListCost", "contracted": "ContractedCost"}
TIMES = ("BillingPeriodStart", "ChargePeriodStart", "ChargePeriodEnd")
PROVIDERS = (("amazon", "aws"), ("aws", "aws"), ("azure", "azure"), ("microsoft", "azure"), ("google", "gcp"),
             ("alibaba", "alibaba"), ("tencent", "tencent"), ("volcengine", "volcengine"))  # fmt: skip
"""A name that contains the first is the second; any other provider keeps its own name."""

OWN_ROWS = "x_OriginId"
"""A column of our own FOCUS export alone: its tokens are GPU time, not a vendor's API."""
OWN_NOTE = "this is a Tokenfuse's own showback: in the Tokenfuse that wrote it, its money stands in the ledger already"


class Focus:
    """``source``: the issuer, where a format has one."""

    def __init__(self, source: str = "") -> None:
        self.source = source

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        money = {"billed": columns.require("BilledCost"), "effective": columns.require("EffectiveCost")}
        for alias in ("list", "contracted"):
            found = columns.find(COSTS[alias])
            if found is not None:
                money[alias] = found
        numbers = {
            alias: found
            for alias, name in (("consumed", "ConsumedQuantity"), ("priced", "PricingQuantity"))
            if (found := columns.find(name)) is not None
        }
        shared = self._shared(columns, options, numbers)
        costs = {alias: f"m_{alias}" for alias in money}
        memo = dict.fromkeys(money, "0") | {"memo": "m_effective", "kind": "'split'", "quantity": "NULL", "hours": "NULL"}
        selects = [ChargeSelect({**shared, **costs}, where="NOT d_split"), ChargeSelect({**shared, **memo}, where="d_split")]
        return ChargePlan(
            selects=tuple(selects) if columns.find("AllocatedMethodId") else tuple(selects[:1]),
            money=money,
            numbers=numbers,
            derived={"split": _split(columns), "instance": _instance(columns)},
            notes=(OWN_NOTE,) if columns.find(OWN_ROWS) else (),
            checks=(
                *(
                    RowCheck(f"m_{alias} IS NULL", COSTS[alias], "the cost is missing", "a charge without a cost is not zero")
                    for alias in ("billed", "effective")
                ),
                *time_checks(columns, *TIMES),
            ),
        )

    def _shared(self, columns: Columns, options: BillOptions, numbers: dict[str, str]) -> dict[str, str]:
        text = columns.text
        consumed = "n_consumed" if "consumed" in numbers else "NULL"
        priced = "n_priced" if "priced" in numbers else "NULL"
        unit = f"CASE WHEN {consumed} IS NOT NULL THEN {text('ConsumedUnit')} ELSE {text('PricingUnit')} END"
        return {
            "provider": self._provider(columns, options),
            "invoice_issuer": text("InvoiceIssuerName", "InvoiceIssuer"),
            "billing_account": text("BillingAccountId"),
            "account": text("SubAccountId"),
            "invoice_id": text("InvoiceId", "x_InvoiceId"),
            "billing_period": f"at_utc({text('BillingPeriodStart')})::DATE",
            "charge_start": f"at_utc({text('ChargePeriodStart')})",
            "charge_end": f"at_utc({text('ChargePeriodEnd')})",
            "service": text("ServiceName"),
            "region": text("RegionId", "Region", "RegionName"),
            "zone": text("AvailabilityZone"),
            "resource_id": text("ResourceId"),
            "parent_resource_id": text("AllocatedResourceId"),
            "instance_type": "d_instance",
            "sku": text("SkuId"),
            "meter": text("SkuMeter", "x_UsageType", "x_SkuMeterName"),
            "operation": text("x_Operation"),
            "description": text("ChargeDescription"),
            "commitment_id": text("CommitmentDiscountId"),
            "capacity_reservation_id": text("CapacityReservationId"),
            "charge_category": text("ChargeCategory"),
            "charge_class": text("ChargeClass"),
            "kind": _kind(columns),
            "family": _family(columns, self.source or options.source),
            "pricing_category": text("PricingCategory"),
            "currency": currency_sql(text("BillingCurrency"), options),
            "unit": unit,
            "quantity": f"CASE WHEN {_kind(columns)} = 'usage' THEN coalesce({consumed}, {priced}) END",
            "hours": f"CASE WHEN {_kind(columns)} IN ('usage', 'reservation_unused') AND d_instance IS NOT NULL "
            f"AND lower({text('ConsumedUnit')}) IN ('hours', 'hour', 'hrs') THEN {consumed} END",
            "tags": json_text(text("Tags")),
        }

    def _provider(self, columns: Columns, options: BillOptions) -> str:
        said = columns.text("ServiceProviderName", "ProviderName", "Provider", "PublisherName", "Publisher")
        cases = " ".join(f"WHEN contains(lower({said}), {string(part)}) THEN {string(name)}" for part, name in PROVIDERS)
        fixed = self.source or options.source
        return f"coalesce(CASE {cases} ELSE {said} END, {string(fixed) if fixed else 'NULL'})"


def _kind(columns: Columns) -> str:
    """What FOCUS calls category, and what its cost columns and states say on top."""
    status, reservation = columns.text("CommitmentDiscountStatus"), columns.text("CapacityReservationStatus")
    covers = "m_effective = 0 AND m_billed <> 0"
    if columns.find("CommitmentDiscountId"):
        covers = f"m_effective = 0 AND (m_billed <> 0 OR {columns.text('CommitmentDiscountId')} IS NOT NULL)"
    category = columns.text("ChargeCategory")
    return (
        f"CASE WHEN {category} = 'Tax' THEN 'tax' WHEN {category} = 'Credit' THEN 'credit' "
        f"WHEN {category} = 'Adjustment' THEN 'adjustment' "
        f"WHEN {category} = 'Purchase' THEN CASE WHEN {covers} THEN 'commitment_purchase' ELSE 'purchase' END "
        f"WHEN {category} = 'Usage' THEN CASE WHEN {status} = 'Unused' THEN 'commitment_unused' "
        f"WHEN {reservation} = 'Unused' THEN 'reservation_unused' ELSE 'usage' END ELSE 'unknown' END"
    )


def _instance(columns: Columns) -> str:
    details = columns.text("SkuPriceDetails", "x_SkuDetails")
    in_details = [f"json_extract_string(TRY_CAST({details} AS JSON), '$.{key}')" for key in ("InstanceType", "x_InstanceType")]
    usage = f"nullif(regexp_extract({columns.text('x_UsageType')}, ':((?:ml\\.)?[a-z][a-z0-9-]*\\.[a-z0-9-]+)$', 1), '')"
    return f"coalesce({', '.join(in_details)}, {columns.text('x_InstanceType')}, {usage})"


def _family(columns: Columns, source: str) -> str:
    category, service = columns.text("ServiceCategory"), columns.text("ServiceName")
    details = columns.text("SkuPriceDetails", "x_SkuDetails")
    gpus = f"TRY_CAST(json_extract_string(TRY_CAST({details} AS JSON), '$.GpuCount') AS DOUBLE)"
    tokens = f"lower({columns.text('ConsumedUnit')}) LIKE '%tokens%'"
    place = f"CASE WHEN {columns.text('x_Cluster')} = 'vendor' THEN 'ai_api' ELSE 'gpu' END"
    own = f"WHEN {columns.text(OWN_ROWS)} IS NOT NULL THEN {place} " if columns.find(OWN_ROWS) else ""
    return (
        f"CASE {own}WHEN {gpu_sql('d_instance', source)} OR coalesce({gpus} > 0, false) THEN 'gpu' "
        f"WHEN {columns.text('ServiceSubcategory')} = 'Generative AI' OR ({category} = 'AI and Machine Learning' AND {tokens}) "
        f"OR regexp_matches(lower({service}), 'bedrock|openai|anthropic') THEN 'ai_api' "
        f"WHEN {category} = 'Compute' THEN 'compute' "
        f"WHEN {category} IS NULL AND {service} IS NULL THEN 'unknown' ELSE 'other' END"
    )


def _split(columns: Columns) -> str:
    """Allocated rows (FOCUS 1.3) whose origin stands in the same delivery repeat its cost; without it they are the cost."""
    method = columns.find("AllocatedMethodId")
    resource, start = columns.find("ResourceId"), columns.find("ChargePeriodStart")
    if method is None or resource is None or start is None:
        return "false"
    key = f"concat({quoted(resource)}, chr(0), {quoted(start)})"
    origins = f"SELECT {key} FROM lines WHERE txt({quoted(method)}) IS NULL"
    return f"(txt({quoted(method)}) IS NOT NULL AND txt({quoted(resource)}) IS NOT NULL AND {key} IN ({origins}))"
