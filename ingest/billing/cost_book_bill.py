"""A cost book's month as a FOCUS 1.2 delivery: what the ordinary bill import reads, so own racks close as a cloud's do."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from core.book_power import day_window
from core.cost_book import Asset, BookLine, CostBook
from core.depreciation import add_months
from core.money import ZERO, plain
from ingest.billing.instance_types import OWN_RACKS, own_machine

SOURCE = "costbook"
CATEGORIES = {"rent": "Other", "support": "Other", "staff": "Other", "network": "Networking", "other": "Other"}
"""FOCUS ServiceCategory of what no node bears; a node's share of anything is Compute."""
COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
    "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "EffectiveCost", "InvoiceId",
    "InvoiceIssuerName", "ListCost", "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName",
    "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter",
    "SkuPriceDetails", "SkuPriceId", "Tags", "x_CostBookItem", "x_CostBookKind",
)  # fmt: skip


def write_delivery(path: Path, book: CostBook, month: date, lines: Iterable[BookLine], invoice_id: str = "") -> int:
    """Write the month's lines as CSV; returns how many. ``invoice_id`` '' is a delivery that is not final."""
    period = (day_window(month).start, day_window(add_months(month, 1)).start)
    shared = {
        "BillingAccountId": book.name, "BillingAccountName": book.issuer, "BillingAccountType": "Cost book",
        "BillingCurrency": book.currency, "BillingPeriodStart": _time(period[0].isoformat()),
        "BillingPeriodEnd": _time(period[1].isoformat()), "InvoiceId": invoice_id, "InvoiceIssuerName": OWN_RACKS,
        "ProviderName": OWN_RACKS, "PublisherName": book.issuer, "PricingCategory": "Standard",
    }  # fmt: skip
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        for line in lines:
            writer.writerow({**shared, **_charge(book, line)})
            count += 1
    return count


def _charge(book: CostBook, line: BookLine) -> dict[str, str]:
    window, amount = day_window(line.day), plain(line.amount)
    tax = line.kind == "tax"
    row = {
        **dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), amount),
        "ChargeCategory": "Tax" if tax else "Usage",
        "ChargeFrequency": "One-Time" if tax else "Usage-Based" if line.kind == "power" else "Recurring",
        "ChargeDescription": line.description,
        "ChargePeriodStart": _time(window.start.isoformat()),
        "ChargePeriodEnd": _time(window.end.isoformat()),
        "ServiceCategory": "Compute" if line.node else CATEGORIES.get(line.kind, "Other"),
        "ServiceName": f"Own racks: {line.kind}",
        "ServiceSubcategory": "Virtual Machines" if line.node else "Other (Other)",
        "SkuId": "" if tax else line.item,
        "SkuPriceId": "" if tax else f"{line.item}/{line.kind}",
        "SkuMeter": "" if tax else line.kind,
        "PricingCategory": "" if tax else "Standard",
        "x_CostBookItem": line.item,
        "x_CostBookKind": line.kind,
    }
    if line.quantity is not None or line.hours is not None:
        quantity, unit = (line.hours, "Hours") if line.hours is not None else (line.quantity, line.unit)
        row |= {"ConsumedQuantity": plain(quantity or ZERO), "ConsumedUnit": unit}
        row |= {"PricingQuantity": plain(quantity or ZERO), "PricingUnit": unit}
    elif not tax:
        row |= {"PricingQuantity": "1", "PricingUnit": "Days"}
    tags = {"item": line.item, "kind": line.kind}
    return row | (_machine(book.asset_of(line.node), line.node, tags) if line.node else {"Tags": json.dumps(tags)})


def _machine(asset: Asset, node: str, tags: dict[str, str]) -> dict[str, str]:
    details = {"InstanceType": own_machine(asset.gpus, asset.gpu_type), "GpuCount": asset.gpus}
    named = {**tags, "asset": asset.id, "node": node, **({"cluster": asset.cluster} if asset.cluster else {})}
    return {
        "ResourceId": node, "ResourceName": node, "ResourceType": "Node",
        "SkuPriceDetails": json.dumps(details), "Tags": json.dumps(named),
    }  # fmt: skip


def _time(text: str) -> str:
    return text.replace("+00:00", "Z")
