"""Google's billing export: credits in the total, the invoice's month and the day of use, both spellings of lists."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from bill_takes import Takes
from sqlalchemy import Engine

from core.errors import BadInput
from core.windows import Window

pytestmark = pytest.mark.db


@pytest.fixture
def gcp(db: Engine, tmp_path: Path) -> Takes:
    return Takes(db, tmp_path, "gcp")


def line(cost: str, start: str = "2025-07-10 05:00:00+00:00", invoice: str = "202507", **more: str) -> dict[str, str]:
    return {
        "billing_account_id": "000000-B0BBA4", "project.id": "p1", "service.description": "Compute Engine", "sku.id": "D5A4",
        "sku.description": "Nvidia Tesla A100 GPU running in Americas", "usage_start_time": start, "usage_end_time": "",
        "cost": cost, "currency": "USD", "usage.amount": "3600", "usage.unit": "seconds", "credits": "[]", "labels": "[]",
        "invoice.month": invoice, "cost_type": "regular", **more,
    }  # fmt: skip


@pytest.mark.realdata
def test_the_public_sample_sums_to_its_source(gcp: Takes, realdata: Path) -> None:
    (bill,) = gcp.path(realdata / "billing/gcp/koku_gcp_2020-11_credits.csv")
    assert (bill.rows, str(bill.billing_period), Decimal(bill.totals[0]["billed"])) == (25, "2020-11-01", 0)
    costs = gcp.by("kind")
    assert costs == {"usage": Decimal("0.000032"), "credit": Decimal("-0.000032")}


@pytest.mark.parametrize(
    "credits",
    [
        "[{'name': 'Free: Bob''s', 'amount': -64.52, 'full_name': None, 'type': 'PROMOTION'}]".replace("''", " "),
        '[{"name": "Free", "amount": -64.52, "type": "PROMOTION"}]',
        '[{"name": "Free", "amount": "-64.52", "type": "PROMOTION"}]',
        "[{'type': 'PROMOTION', 'amount': -60.02}, {'type': 'FREE_TIER', 'amount': -4.5}]",
    ],
)
def test_d1_credits_are_in_the_total(gcp: Takes, credits: str) -> None:
    (bill,) = gcp.rows([line("228.11", credits=credits)])
    assert bill.totals[0]["billed"] == bill.totals[0]["effective"] == "163.59"
    assert gcp.by("bucket") == {"gpu": Decimal("228.11"), "credit": Decimal("-64.52")}


def test_d2_a_credit_hides_no_use(gcp: Takes) -> None:
    gcp.rows([line("33.86", credits="[{'type': 'PROMOTION', 'amount': -33.86}]")])
    assert gcp.by("bucket") == {"gpu": Decimal("33.86"), "credit": Decimal("-33.86")}
    assert gcp.by() == {"USD": 0}


def test_a_credit_keeps_decimals_that_no_cost_has(gcp: Takes) -> None:
    gcp.rows([line("1", credits="[{'type': 'COMMITTED_USAGE_DISCOUNT', 'amount': -0.1234567890123456789012}, "
                                "{'type': 'DISCOUNT', 'amount': -5e-06}]")])  # fmt: skip
    assert gcp.by("kind") == {"usage": 1, "discount": Decimal("-0.1234617890123456789012")}


def test_c1_the_month_of_the_invoice_and_the_month_of_use(gcp: Takes) -> None:
    gcp.rows([line("5", "2025-07-31 10:00:00+00:00", "202508"), line("3", "2025-08-01 10:00:00+00:00", "202507")])
    assert gcp.by("billing_period") == {"2025-07-01": 3, "2025-08-01": 5}
    assert gcp.by("month") == {"2025-07-01": 5, "2025-08-01": 3}
    july = (date(2025, 7, 1), date(2025, 8, 1))
    assert gcp.by(billing_months=july) == {"USD": 3}
    assert gcp.by(days=Window(datetime(2025, 7, 1, tzinfo=UTC), datetime(2025, 8, 1, tzinfo=UTC))) == {"USD": 5}


def test_lines_by_cost_type_and_labels_as_text(gcp: Takes) -> None:
    labels = "[{'key': 'Team', 'value': '007'}, {'key': 'team', 'value': 'x'}]"
    kinds = ("regular", "tax", "adjustment", "rounding_error", "new")
    gcp.rows([line("1", cost_type=kind, labels=labels) for kind in kinds])
    assert gcp.by("bucket") == {"gpu": 1, "tax": 1, "adjustment": 2, "unknown": 1}
    assert gcp.by("tag:Team", "tag:team") == {("007", "x"): 5}


def test_e1_currencies_are_not_added(gcp: Takes) -> None:
    gcp.rows([line("10"), line("10", currency="CNY")])
    assert gcp.by() == {"CNY": 10, "USD": 10}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cost": "abc"}, r"row 2: cost.*'abc'"),
        ({"cost": ""}, r"row 2: cost.*missing"),
        ({"invoice.month": "July"}, r"row 2: invoice\.month.*'July'.*YYYYMM"),
        ({"credits": "[{'amount': -1, 'name': 'a', b'}]"}, r"row 2: credits.*cannot be read"),
        ({"credits": "[{'amount': 'many', 'name': 'a'}]"}, r"row 2: credits.*no number"),
        ({"credits": "[{'name': 'a'}]"}, r"row 2: credits.*no number"),
    ],
)
def test_f7_a_refusal_names_row_column_and_value(gcp: Takes, change: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        gcp.rows([line("1"), {**line("1"), **change}])
