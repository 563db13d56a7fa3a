"""Volcengine: answers of billing 2022-01-01 ListBillDetail and ListSplitBillDetail, as JSON lines or CSV."""

from __future__ import annotations

from ingest.billing.adapter import BillOptions, ChargePlan, ChargeSelect, Columns, currency_sql, json_text
from ingest.billing.sql import string
from ingest.billing.utc8 import category_sql, checks, family, month, one_granularity, span

VENDOR_API = r"\bark\b|方舟|doubao|豆包"
BOUGHT = "-(new|renew|formal|modify)"


class Volcengine:
    source = "volcengine"

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        text = columns.text
        money = {"billed": columns.require("PayableAmount")}
        listed, used = columns.find("OriginalBillAmount"), columns.find("Count")
        if listed is not None:
            money["list"] = listed
        columns.require("BillPeriod")
        period, day, begin = text("BillPeriod"), text("ExpenseDate"), text("ExpenseBeginTime")
        machine = text("ConfigurationCode", "InstanceSpec", "ConfigName")
        product = f"concat_ws(' ', {text('Product')}, {text('ProductZh')}, {text('ConfigName')})"
        kind = _kind(f"lower({text('BillCategory', 'BillCategoryParent')})")
        charge = {
            **span(begin, text("ExpenseEndTime"), day, period),
            "provider": "'volcengine'",
            "invoice_issuer": f"coalesce({text('SellerCustomerName')}, 'Volcengine')",
            "billing_account": text("PayerID"),
            "account": text("OwnerID", "PayerID"),
            "billing_period": month(period),
            "service": text("ProductZh", "Product"),
            "region": text("RegionCode", "Region"),
            "zone": text("ZoneCode", "Zone"),
            "resource_id": text("InstanceNo"),
            "instance_type": machine,
            "sku": text("ElementCode", "FactorCode"),
            "meter": text("Element"),
            "description": text("ConfigName"),
            "kind": kind,
            "charge_category": category_sql(kind),
            "family": family("volcengine", machine, product, VENDOR_API),
            "pricing_category": text("BillingMode"),
            "currency": currency_sql(text("Currency"), options),
            "billed": "m_billed",
            "effective": "m_billed",
            "list": "m_list" if listed else "NULL",
            "quantity": "n_used" if used else "NULL",
            "unit": text("Unit"),
            "tags": json_text(text("Tag")),
        }
        return ChargePlan(
            selects=(ChargeSelect(charge),),
            money=money,
            numbers={"used": used} if used else {},
            checks=(
                *checks("PayableAmount", period, "BillPeriod"),
                one_granularity(f"coalesce({day}, {begin})", period, "ExpenseDate"),
            ),
        )


def _kind(category: str) -> str:
    """``consume-use``, ``consume-new``, ``refund-…``, ``transfer-…``, and their Chinese spellings."""
    return (
        f"CASE WHEN regexp_matches({category}, '^(refund|退款)') THEN 'refund' "
        f"WHEN regexp_matches({category}, '^(transfer|转|调账)') THEN 'adjustment' "
        f"WHEN regexp_matches({category}, {string(f'^consume{BOUGHT}|^消费-(新购|续费|更配|转正)')}) THEN 'purchase' "
        f"WHEN regexp_matches({category}, '^(consume|消费)') THEN 'usage' ELSE 'unknown' END"
    )
