"""Tencent Cloud: answers of billing 2018-07-09 DescribeBillDetail as JSON lines, or CSV with a line for each component.

A bill line holds components; each is a charge, and what the line repeats of their sum is not added.
"""

from __future__ import annotations

from ingest.billing.adapter import BillOptions, ChargePlan, ChargeSelect, Columns, currency_sql
from ingest.billing.sql import string
from ingest.billing.utc8 import category_sql, checks, family, instant, month, one_granularity, span

VENDOR_API = "hunyuan|混元|lkeap|大模型知识引擎|deepseek"
COST = ("ComponentSet.RealTotalCost", "ComponentSet.RealCost", "RealTotalCost", "RealCost")
KINDS = (
    ("refund", "return|refund|退|冲正"),
    ("adjustment", "adjust|offset|调账"),
    ("purchase", "^prepay|^包年包月|^预付费|新购|续费"),
    ("usage", "postpay|deduct|按量|扣费|结算|竞价"),
)  # fmt: skip
"""What ActionType, or its Chinese name, contains; the first that does decides."""


class Tencent:
    source = "tencent"

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        text = columns.text
        cost = columns.require(*COST)
        money = {"billed": cost}
        listed, used = columns.find("ComponentSet.Cost", "Cost"), columns.find("ComponentSet.UsedAmount", "UsedAmount")
        if listed is not None:
            money["list"] = listed
        begin, day = text("FeeBeginTime"), text("BillDay")
        period = text("BillMonth") if columns.find("BillMonth") else f"strftime({instant(begin)} + INTERVAL 8 HOUR, '%Y-%m')"
        component = text("ComponentSet.ComponentCodeName", "ComponentCodeName")
        item = text("ComponentSet.ItemCodeName", "ItemCodeName")
        machine = text("InstanceType", "ComponentSet.InstanceType")
        product = f"concat_ws(' ', {text('ProductCode')}, {text('BusinessCodeName')}, {text('ProductCodeName')}, {item})"
        kind = _kind(text("ActionType", "ActionTypeName"))
        charge = {
            **span(begin, text("FeeEndTime"), day, period),
            "provider": "'tencent'",
            "invoice_issuer": "'Tencent Cloud'",
            "billing_account": text("PayerUin"),
            "account": text("OwnerUin", "PayerUin"),
            "billing_period": month(period),
            "service": text("BusinessCodeName", "ProductCodeName"),
            "region": text("RegionName"),
            "zone": text("ZoneName"),
            "resource_id": text("ResourceId"),
            "instance_type": machine,
            "sku": text("ProductCode", "ProductCodeName"),
            "meter": f"concat_ws(' / ', {component}, {item})",
            "description": text("ActionTypeName"),
            "kind": kind,
            "charge_category": category_sql(kind),
            "family": family("tencent", machine, product, VENDOR_API),
            "pricing_category": text("PayModeName"),
            "currency": currency_sql(text("Currency", "ComponentSet.Currency"), options),
            "billed": "m_billed",
            "effective": "m_billed",
            "list": "m_list" if listed else "NULL",
            "quantity": "n_used" if used else "NULL",
            "unit": text("ComponentSet.UsedAmountUnit", "UsedAmountUnit"),
            "tags": _tags(text("Tags")),
        }
        return ChargePlan(
            selects=(ChargeSelect(charge),),
            money=money,
            numbers={"used": used} if used else {},
            checks=(
                *checks(cost, period, "BillMonth"),
                one_granularity(f"coalesce({day}, {begin})", period, "BillDay"),
            ),
        )


def _kind(action: str) -> str:
    cases = " ".join(f"WHEN regexp_matches(lower({action}), {string(pattern)}) THEN '{kind}'" for kind, pattern in KINDS)
    return f"CASE {cases} ELSE 'unknown' END"


def _tags(cell: str) -> str:
    """``[{"TagKey": …, "TagValue": …}]`` as a JSON object; any other text is kept under ``_unread``."""
    pair = (
        "to_json(coalesce(json_extract_string(t, '$.TagKey'), ''))::VARCHAR || ':' "
        "|| to_json(coalesce(json_extract_string(t, '$.TagValue'), ''))::VARCHAR"
    )
    pairs = f"list_transform(TRY_CAST(TRY_CAST({cell} AS JSON) AS JSON[]), lambda t: {pair})"
    return (
        f"CASE WHEN {cell} IS NULL THEN '{{}}' WHEN TRY_CAST(TRY_CAST({cell} AS JSON) AS JSON[]) IS NULL "
        f"THEN json_object('_unread', {cell})::VARCHAR ELSE '{{' || array_to_string({pairs}, ',') || '}}' END"
    )
