"""Lines of a generated AWS cost and usage report, in the spellings of the legacy report and of CUR 2.0.

Nothing here is of a real account: every line says so in ``x_generated``, and the report's name begins with ``generated-``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Literal

from core.money import ZERO, plain
from core.windows import month_on

Spelling = Literal["legacy", "cur2"]
HOUR = timedelta(hours=1)
PAYER, ACCOUNT, REGION = "099999999999", "012345678901", "us-east-1"
PARTITION = f"arn:aws:ec2:{REGION}:{ACCOUNT}"


@dataclass(frozen=True, slots=True)
class Says:
    """What a line is, said by who made it: its bucket and exact costs. ``memo`` repeats cost of other lines."""

    bucket: str
    billed: Decimal = ZERO
    effective: Decimal = ZERO
    memo: Decimal = ZERO


@dataclass(frozen=True, slots=True)
class CurLine:
    """One line. ``more``: money and names of commitments by legacy header; ``node``: the machine whose running cost it is."""

    line_type: str
    start: datetime
    end: datetime
    product: str
    says: tuple[Says, ...]
    unblended: Decimal = ZERO
    public: Decimal | None = None
    usage: Decimal = ZERO
    usage_type: str = ""
    operation: str = ""
    resource: str = ""
    instance_type: str = ""
    unit: str = ""
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str | Decimal] = field(default_factory=dict)
    node: str = ""


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def written(lines: Iterable[CurLine], period: date, invoice: str, spelling: Spelling) -> list[dict[str, str]]:
    """The lines as rows of a delivery: header to text. ``invoice`` is empty until the month is final."""
    rows = [_row(number, line, period, invoice) for number, line in enumerate(lines)]
    if spelling == "legacy":
        return rows
    return [_cur2(row) for row in rows]


def headers(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Every column that any row has, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _row(number: int, line: CurLine, period: date, invoice: str) -> dict[str, str]:
    return {
        "identity/LineItemId": f"generated-{number:07d}",
        "identity/TimeInterval": f"{stamp(line.start)}/{stamp(line.end)}",
        "bill/InvoiceId": invoice,
        "bill/BillingEntity": "AWS",
        "bill/BillType": "Refund" if line.line_type == "Refund" else "Anniversary",
        "bill/PayerAccountId": PAYER,
        "bill/BillingPeriodStartDate": f"{period}T00:00:00Z",
        "bill/BillingPeriodEndDate": f"{month_on(period, 1)}T00:00:00Z",
        "lineItem/UsageAccountId": ACCOUNT,
        "lineItem/LineItemType": line.line_type,
        "lineItem/UsageStartDate": stamp(line.start),
        "lineItem/UsageEndDate": stamp(line.end),
        "lineItem/ProductCode": line.product,
        "lineItem/UsageType": line.usage_type,
        "lineItem/Operation": line.operation,
        "lineItem/ResourceId": line.resource,
        "lineItem/UsageAmount": plain(line.usage),
        "lineItem/CurrencyCode": "USD",
        "lineItem/UnblendedCost": plain(line.unblended),
        "lineItem/LineItemDescription": line.description,
        "lineItem/LegalEntity": "Generated Web Services",
        "product/instanceType": line.instance_type,
        "product/region": REGION,
        "pricing/unit": line.unit,
        "pricing/publicOnDemandCost": "" if line.public is None else plain(line.public),
        **{name: plain(value) if isinstance(value, Decimal) else value for name, value in line.more.items()},
        **{f"resourceTags/{name}": value for name, value in line.tags.items()},
        "x_generated": "true",
    }


def _cur2(row: Mapping[str, str]) -> dict[str, str]:
    """Data Exports write snake case, and products and tags as maps."""
    product = {"instance_type": row["product/instanceType"], "region": row["product/region"]}
    tags = {_snake(n.removeprefix("resourceTags/")): v for n, v in row.items() if n.startswith("resourceTags/") and v}
    kept = {name: value for name, value in row.items() if not name.startswith(("product/", "resourceTags/"))}
    return {
        **{_snake(name): value for name, value in kept.items()},
        "product": json.dumps({name: value for name, value in product.items() if value}),
        "resource_tags": json.dumps(tags),
    }


def _snake(header: str) -> str:
    """``savingsPlan/SavingsPlanARN`` is ``savings_plan_savings_plan_a_r_n``."""
    return re.sub(r"(?<=[A-Za-z0-9])(?=[A-Z])", "_", header).replace("/_", "_").replace("/", "_").replace(":", "_").lower()
