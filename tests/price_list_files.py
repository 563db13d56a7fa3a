"""Excerpts of the EC2 price list in its published shape, for tests: the metadata lines, the columns, and rows of every kind that
must not be taken for a GPU's price. Prices are those of the public list; SKUs are made up."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

COLUMNS = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "StartingRange", "EndingRange", "Unit",
    "PricePerUnit", "Currency", "RelatedTo", "LeaseContractLength", "PurchaseOption", "OfferingClass", "Product Family",
    "serviceCode", "Location", "Location Type", "Instance Type", "Current Generation", "Instance Family", "vCPU",
    "Physical Processor", "Clock Speed", "Memory", "Storage", "Network Performance", "Processor Architecture", "Tenancy",
    "Operating System", "License Model", "usageType", "operation", "AvailabilityZone", "CapacityStatus", "GPU", "GPU Memory",
    "MarketOption", "Normalization Size Factor", "Pre Installed S/W", "Region Code", "serviceName",
)  # fmt: skip
ATTRIBUTES = {
    "Location Type": "locationType", "Instance Type": "instanceType", "Tenancy": "tenancy", "Operating System": "operatingSystem",
    "License Model": "licenseModel", "CapacityStatus": "capacitystatus", "MarketOption": "marketoption",
    "Pre Installed S/W": "preInstalledSw", "Region Code": "regionCode", "GPU": "gpu",
}  # fmt: skip


def price(instance: str, amount: str, sku: str, **changes: str) -> dict[str, str]:
    """One on-demand Linux row; ``changes`` by column, blanks written as ``_``."""
    row = {
        "SKU": sku, "OfferTermCode": "JRTCKXETXF", "RateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7", "TermType": "OnDemand",
        "PriceDescription": f"${amount} per On Demand Linux {instance} Instance Hour", "EffectiveDate": "2025-07-01",
        "StartingRange": "0", "EndingRange": "Inf", "Unit": "Hrs", "PricePerUnit": amount, "Currency": "USD",
        "Product Family": "Compute Instance", "serviceCode": "AmazonEC2", "Location": "US East (N. Virginia)",
        "Location Type": "AWS Region", "Instance Type": instance, "Tenancy": "Shared", "Operating System": "Linux",
        "License Model": "No License required", "usageType": f"BoxUsage:{instance}", "operation": "RunInstances",
        "CapacityStatus": "Used", "MarketOption": "OnDemand", "Pre Installed S/W": "NA", "Region Code": "us-east-1",
    }  # fmt: skip
    return row | {name.replace("_", " "): value for name, value in changes.items()}


def july_2025() -> list[dict[str, str]]:
    """p4d, p5 and g5 with the rows around them: Capacity Blocks at 0, Windows, reserved terms, dedicated hosts, reservations, a
    local zone, machines without GPUs."""
    return [
        price("p5.48xlarge", "55.0400000000", "AAAA000000000001"),
        price("p5.48xlarge", "0.0000000000", "AAAA000000000002", MarketOption="CapacityBlock"),
        price("p5.48xlarge", "55.0400000000", "AAAA000000000003", CapacityStatus="UnusedCapacityReservation"),
        price("p5.48xlarge", "0.0000000000", "AAAA000000000004", CapacityStatus="AllocatedCapacityReservation"),
        price("p4d.24xlarge", "21.9576420000", "AAAA000000000005"),
        price("p4d.24xlarge", "26.3735420000", "AAAA000000000006", Operating_System="Windows"),
        price("p4d.24xlarge", "14.2000000000", "AAAA000000000005", TermType="Reserved", LeaseContractLength="1yr",
              PurchaseOption="No Upfront", OfferingClass="standard", OfferTermCode="4NA7Y494T4"),
        price("p4d.24xlarge", "124340", "AAAA000000000005", TermType="Reserved", Unit="Quantity", PriceDescription="Upfront Fee"),
        price("p4d.24xlarge", "24.1534062000", "AAAA000000000007", Tenancy="Dedicated"),
        price("g5.xlarge", "1.0060000000", "AAAA000000000008"),
        price("g5.12xlarge", "5.6720000000", "AAAA000000000009"),
        price("g5.xlarge", "1.2570000000", "AAAA000000000010",
              **{"Location Type": "AWS Local Zone", "Region Code": "us-east-1-bos-1"}),
        price("m5.large", "0.0960000000", "AAAA000000000011"),
        price("", "0.0100000000", "AAAA000000000012", **{"Product Family": "Data Transfer", "Unit": "GB"}),
    ]  # fmt: skip


def write_csv(
    path: Path, rows: Iterable[Mapping[str, str]], version: str = "20250703204906", columns: Iterable[str] = COLUMNS
) -> Path:
    """As published: five lines of metadata, the header, every cell in quotes; packed if the name ends in .gz."""
    published = f"{version[:4]}-{version[4:6]}-{version[6:8]}T{version[8:10]}:{version[10:12]}:{version[12:14]}Z"
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(("FormatVersion", "v1.0"))
    writer.writerow(("Disclaimer", 'This pricing list is for informational purposes only, "as is", see the pricing pages.'))
    writer.writerows((("Publication Date", published), ("Version", version), ("OfferCode", "AmazonEC2")))
    named = tuple(columns)
    writer.writerow(named)
    writer.writerows([row.get(name, "") for name in named] for row in rows)
    body = out.getvalue().encode()
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


def write_json(path: Path, rows: Iterable[Mapping[str, str]], version: str = "20250703204906") -> Path:
    """The same as index.json: products apart from terms."""
    products: dict[str, Any] = {}
    terms: dict[str, dict[str, Any]] = {"OnDemand": {}, "Reserved": {}}
    for row in rows:
        sku, offer = row["SKU"], row["OfferTermCode"]
        about = {ATTRIBUTES[name]: value for name, value in row.items() if name in ATTRIBUTES and value}
        products.setdefault(sku, {"sku": sku, "productFamily": row["Product Family"], "attributes": about})
        dimension = {"rateCode": row["RateCode"], "unit": row["Unit"], "pricePerUnit": {row["Currency"]: row["PricePerUnit"]}}
        found = terms[row["TermType"]].setdefault(sku, {}).setdefault(f"{sku}.{offer}", {"sku": sku, "priceDimensions": {}})
        found["priceDimensions"][f"{row['RateCode']}{len(found['priceDimensions'])}"] = dimension
    whole = {
        "formatVersion": "v1.0", "disclaimer": "…", "offerCode": "AmazonEC2", "version": version,
        "publicationDate": "2025-07-03T20:49:06Z", "products": products, "terms": terms, "attributesList": {},
    }  # fmt: skip
    body = json.dumps(whole, indent=2, ensure_ascii=False).encode()
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path
