"""Lines of generated AWS reports for tests: what a line needs, with everything else as a report has it."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path

from ingest.billing.aws_cur import NET_COLUMNS, SOURCE_COLUMNS


def cur_line(
    line_type: str = "Usage",
    amounts: Mapping[str, Decimal | str] | None = None,
    *,
    net: bool = False,
    usage_type: str = "BoxUsage:p4d.24xlarge",
    operation: str = "RunInstances",
    product: str = "AmazonEC2",
    reservation: str = "",
    start: str = "2026-07-01T00:00:00Z",
    period: str = "2026-07-01T00:00:00Z",
    invoice: str = "",
    resource: str = "i-1",
    currency: str = "USD",
    usage: str = "1",
    account: str = "012345678901",
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """One line by header; amounts by the names of ``core.aws_cost.AMOUNTS``."""
    names = {**SOURCE_COLUMNS, **(NET_COLUMNS if net else {})}
    return {
        "identity/LineItemId": "x",
        "bill/InvoiceId": invoice,
        "bill/PayerAccountId": "099999999999",
        "bill/BillingPeriodStartDate": period,
        "lineItem/UsageAccountId": account,
        "lineItem/LineItemType": line_type,
        "lineItem/UsageStartDate": start,
        "lineItem/ProductCode": product,
        "lineItem/UsageType": usage_type,
        "lineItem/Operation": operation,
        "lineItem/ResourceId": resource,
        "lineItem/UsageAmount": usage,
        "lineItem/CurrencyCode": currency,
        "lineItem/LineItemDescription": "",
        "reservation/ReservationARN": reservation,
        "pricing/unit": "Hrs",
        **{names[name]: format(Decimal(text), "f") for name, text in (amounts or {}).items()},
        **(more or {}),
    }


def csv_bytes(rows: Iterable[Mapping[str, str]]) -> bytes:
    """CSV with every column that any row has."""
    rows = list(rows)
    headers = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, headers, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def write_cur(path: Path, rows: Iterable[Mapping[str, str]]) -> Path:
    """A CSV file, packed when its name ends in .gz."""
    body = csv_bytes(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path
