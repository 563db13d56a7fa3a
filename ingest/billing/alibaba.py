"""Alibaba Cloud: answers of BssOpenApi DescribeInstanceBill, QueryInstanceBill and DescribeSplitItemBill (2017-12-14), as JSON
lines or as CSV of the same fields (the bill subscription to OSS)."""

from __future__ import annotations

from ingest.billing.adapter import BillOptions, ChargePlan, ChargeSelect, Columns, currency_sql
from ingest.billing.sql import string
from ingest.billing.utc8 import category_sql, checks, family, month, one_granularity, span

VENDOR_API = "bailian|dashscope|百炼|大模型服务|model studio"


class Alibaba:
    source = "alibaba"

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        text = columns.text
        money = {"billed": columns.require("PretaxAmount")}
        listed, used = columns.find("PretaxGrossAmount"), columns.find("Usage")
        if listed is not None:
            money["list"] = listed
        cycle, day = text("BillingCycle"), text("BillingDate")
        columns.require("BillingCycle")
        product = f"concat_ws(' ', {text('ProductCode')}, {text('ProductName')}, {text('ProductDetail')})"
        charge = {
            **span(text("UsageStartTime"), text("UsageEndTime"), day, cycle),
            "provider": "'alibaba'",
            "invoice_issuer": "'Alibaba Cloud'",
            "billing_account": text("AccountID", "BillAccountID"),
            "account": text("BillAccountID", "OwnerID", "AccountID"),
            "billing_period": month(cycle),
            "service": text("ProductName", "ProductCode"),
            "region": text("Region"),
            "zone": text("Zone"),
            "resource_id": text("InstanceID"),
            "instance_type": text("InstanceSpec"),
            "sku": text("CommodityCode"),
            "meter": text("BillingItem", "BillingItemCode"),
            "description": text("ProductDetail"),
            "kind": _kind(text("Item")),
            "charge_category": category_sql(_kind(text("Item"))),
            "family": family("alibaba", text("InstanceSpec"), product, VENDOR_API),
            "pricing_category": text("SubscriptionType"),
            "currency": currency_sql(text("Currency"), options),
            "billed": "m_billed",
            "effective": "m_billed",
            "list": "m_list" if listed else "NULL",
            "quantity": "n_used" if used else "NULL",
            "unit": text("UsageUnit"),
            "tags": _tags(text("Tag")),
        }
        return ChargePlan(
            selects=(ChargeSelect(charge),),
            money=money,
            numbers={"used": used} if used else {},
            checks=(*checks("PretaxAmount", cycle, "BillingCycle"), one_granularity(day, cycle, "BillingDate")),
        )


def _kind(item: str) -> str:
    return (
        f"CASE WHEN {item} = 'PayAsYouGoBill' OR ({item} IS NULL AND m_billed >= 0) THEN 'usage' "
        f"WHEN {item} = 'SubscriptionOrder' THEN 'purchase' WHEN {item} = 'Refund' OR {item} IS NULL THEN 'refund' "
        f"WHEN {item} = 'Adjustment' THEN 'adjustment' ELSE 'unknown' END"
    )


def _tags(cell: str) -> str:
    """``key:x value:y; key:…`` as a JSON object; any other text is kept under ``_unread``."""
    pattern = string(r"key:(.*?) value:(.*?)(?:;\s*|$)")
    keys, values = (f"regexp_extract_all({cell}, {pattern}, {group})" for group in (1, 2))
    pairs = f"list_transform(list_zip({keys}, {values}), lambda p: to_json(p[1])::VARCHAR || ':' || to_json(p[2])::VARCHAR)"
    return (
        f"CASE WHEN {cell} IS NULL THEN '{{}}' WHEN len({keys}) = 0 THEN json_object('_unread', {cell})::VARCHAR "
        f"ELSE '{{' || array_to_string({pairs}, ',') || '}}' END"
    )
