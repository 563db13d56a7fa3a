"""Chinese clouds by their documented API shapes: local times as UTC instants, the issuer's month kept, refunds negative."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bill_takes import Takes
from sqlalchemy import Engine

from core.errors import BadInput
from core.windows import Window
from ingest.billing.delivery import Accept

pytestmark = pytest.mark.db


@pytest.fixture
def takes(db: Engine, tmp_path: Path) -> Any:
    return lambda format: Takes(db, tmp_path, format)


def alibaba(*items: dict[str, Any], next_token: str | None = None) -> dict[str, Any]:
    data = {
        "BillingCycle": "2026-07",
        "AccountID": "0185",
        "TotalCount": len(items),
        "Items": list(items),
        "NextToken": next_token,
    }
    return {"Code": "Success", "RequestId": "r", "Success": True, "Data": data}


def ecs(amount: Any, **more: Any) -> dict[str, Any]:
    return {
        "BillAccountID": "0185", "ProductCode": "ecs", "ProductName": "云服务器 ECS", "InstanceID": "i-1",
        "Item": "PayAsYouGoBill",
        "InstanceSpec": "ecs.gn7i-c8g1.2xlarge", "PretaxGrossAmount": 20, "InvoiceDiscount": 2.5, "PretaxAmount": amount,
        "Currency": "CNY", "Usage": "24", "UsageUnit": "Hour", "Tag": "key:team value:a; key:Team value:b c", **more,
    }  # fmt: skip


def volcengine(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"ResponseMetadata": {"RequestId": "r"}, "Result": {"List": list(rows), "Total": len(rows), "Limit": 300, "Offset": 0}}


def volc(amount: str, **more: str) -> dict[str, str]:
    return {
        "BillPeriod": "2026-07", "ExpenseBeginTime": "2026-07-01 00:00:00", "ExpenseEndTime": "2026-07-01 01:00:00",
        "PayerID": "21",
        "OwnerID": "22", "Product": "ECS", "ProductZh": "云服务器", "BillCategory": "consume-use",
        "InstanceNo": "i-9", "Count": "1",
        "ConfigurationCode": "ecs.gni2.3xlarge", "OriginalBillAmount": "12", "PayableAmount": amount, "Currency": "CNY", **more,
    }  # fmt: skip


def tencent(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"Response": {"DetailSet": list(rows), "Total": len(rows), "RequestId": "r"}}


def cvm(*costs: str, **more: Any) -> dict[str, Any]:
    return {
        "BusinessCodeName": "云服务器CVM", "ProductCodeName": "GPU计算型GN10Xp", "PayerUin": "100", "OwnerUin": "101",
        "BillMonth": "2026-07",
        "ActionTypeName": "按量计费扣费", "ResourceId": "ins-1", "FeeBeginTime": "2026-07-01 00:00:00",
        "FeeEndTime": "2026-07-01 01:00:00",
        "RealTotalCost": "999", "Tags": [{"TagKey": "team", "TagValue": "a"}],
        "ComponentSet": [
            {"ComponentCodeName": "云服务器", "ItemCodeName": f"item {n}", "Cost": "9", "RealCost": cost, "UsedAmount": "1"}
            for n, cost in enumerate(costs)
        ],
        **more,
    }  # fmt: skip


def test_alibaba_amounts_tags_and_kinds(takes: Any) -> None:
    bills = takes("alibaba")
    refund, order = ecs(-3.25, Item="Refund"), ecs("100.10", Item="SubscriptionOrder", InstanceSpec="ecs.g7.large")
    (bill,) = bills.documents([alibaba(ecs(17.5), refund), alibaba(order, ecs(0.1, Item="Adjustment"))])
    assert bill.totals == [{"currency": "CNY", "billed": "114.45", "effective": "114.45", "list": "40", "contracted": None}]
    assert bills.by("bucket") == {
        "gpu": Decimal("17.5"), "refund": Decimal("-3.25"), "other_compute": Decimal("100.1"), "adjustment": Decimal("0.1"),
    }  # fmt: skip
    assert bills.by("tag:team", "tag:Team", "account") == {("a", "b c", "0185"): Decimal("114.45")}


def test_c3_a_local_day_begins_eight_hours_earlier_and_the_invoice_keeps_its_month(takes: Any) -> None:
    bills = takes("alibaba")
    bills.documents([alibaba(ecs(4, BillingDate="2026-07-01"), ecs(5, BillingDate="2026-07-31"))])
    assert bills.by("billing_period") == {"2026-07-01": 9}
    assert bills.by("day") == {"2026-06-30": 4, "2026-07-30": 5}
    assert bills.by(days=Window(datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC))) == {"CNY": 5}


def test_the_days_and_the_month_of_one_month_are_never_added(takes: Any) -> None:
    with pytest.raises(BadInput, match=r"row 2: BillingDate.*count twice.*not both"):
        takes("alibaba").documents([alibaba(ecs(4, BillingDate="2026-07-01")), alibaba(ecs(9))])


def test_the_file_of_the_month_takes_the_place_of_its_days(takes: Any, tmp_path: Path) -> None:
    bills, place = takes("alibaba"), tmp_path / "oss"
    place.mkdir()
    for name, cost in (("20260701", "4"), ("20260702", "5")):
        body = f"BillingCycle,BillingDate,PretaxAmount,Currency,AccountID\n2026-07,2026-07-{name[-2:]},{cost},CNY,1\n"
        (place / f"185_BillingItemDetail_{name}.csv").write_text(body)
    bills.path(place)
    assert bills.by() == {"CNY": 9}
    body = "BillingCycle,PretaxAmount,Currency,AccountID\n2026-07,9.5,CNY,1\n"
    (place / "185_BillingItemDetail_202607.csv").write_text(body)
    (bill,) = bills.path(place, accept=Accept(shorter=True))
    assert (bill.export, str(bill.billing_period), bill.version) == ("185_BillingItemDetail", "2026-07-01", 2)
    assert bills.by() == {"CNY": Decimal("9.5")}


def test_pages_that_end_before_the_last_are_refused(takes: Any) -> None:
    with pytest.raises(BadInput, match=r"bill\.jsonl: NextToken.*before its last page"):
        takes("alibaba").documents([alibaba(ecs(4), next_token="AAAB")])


def test_a_csv_of_the_same_fields_is_read_the_same(takes: Any) -> None:
    bills = takes("alibaba")
    row = {key: str(value) for key, value in ecs("17.50").items()}
    bills.rows([{"BillingCycle": "202607", "AccountID": "0185", **row}])
    assert bills.by("bucket", "billing_period") == {("gpu", "2026-07-01"): Decimal("17.5")}


def test_volcengine_refunds_are_negative_and_times_local(takes: Any) -> None:
    bills = takes("volcengine")
    rows = [volc("10.01"), volc("-2", BillCategory="refund-unsubscribe"), volc("1", BillCategory="transfer-in")]
    rows += [volc("100", BillCategory="consume-new"), volc("7", Product="ark", ProductZh="火山方舟", ConfigurationCode="")]
    bills.documents([volcengine(*rows)])
    assert bills.by("kind") == {"usage": Decimal("17.01"), "refund": -2, "adjustment": 1, "purchase": 100}
    assert bills.by("bucket") == {"gpu": Decimal("110.01"), "vendor_api": 7, "refund": -2, "adjustment": 1}
    assert bills.by("day", "billing_period", "account") == {("2026-06-30", "2026-07-01", "22"): Decimal("116.01")}


def test_tencent_components_are_summed_once(takes: Any) -> None:
    bills = takes("tencent")
    (bill,) = bills.documents([tencent(cvm("1.10", "2.20"), cvm("-0.30", ActionTypeName="按量计费退款"))], currency="CNY")
    assert (bill.rows, bill.totals[0]["billed"], bill.totals[0]["currency"]) == (3, "3", "CNY")
    assert bills.by("bucket", "day", "tag:team") == {
        ("gpu", "2026-06-30", "a"): Decimal("3.3"),
        ("refund", "2026-06-30", "a"): Decimal("-0.3"),
    }


def test_a_line_without_components_is_refused_not_zero(takes: Any) -> None:
    with pytest.raises(BadInput, match=r"row 2: ComponentSet\.Real.*missing"):
        takes("tencent").documents([tencent(cvm("1")), tencent({**cvm(), "ComponentSet": []})], currency="CNY")


def test_a_bill_that_names_no_currency_is_asked_for_it(takes: Any) -> None:
    with pytest.raises(BadInput, match=r"row 1: currency.*--currency"):
        takes("tencent").documents([tencent(cvm("1"))])


@pytest.mark.parametrize(
    ("format", "document", "said"),
    [
        ("alibaba", alibaba(ecs(1), ecs("abc")), r"bill\.jsonl row 2: PretaxAmount.*'abc'"),
        ("alibaba", alibaba(ecs(1), ecs(None)), r"row 2: PretaxAmount.*missing"),
        ("volcengine", volcengine(volc("1"), volc("1", BillPeriod="July")), r"row 2: BillPeriod.*'July'.*YYYY-MM"),
        ("tencent", tencent(cvm("1"), cvm("x")), r"row 2: ComponentSet\.RealCost.*'x'"),
        ("tencent", volcengine(volc("1")), r"ComponentSet\.RealTotalCost.*no such column"),
    ],
)
def test_f7_a_refusal_names_row_column_and_value(takes: Any, format: str, document: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        takes(format).documents([document])


def test_a_cut_file_is_refused_with_its_line(takes: Any, tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text('{"Result": {"List": []}}\n{"Result": {"List": [', encoding="utf-8")
    with pytest.raises(BadInput, match=r"cut\.jsonl: line 2 is no JSON"):
        takes("volcengine").path(path, export="main")
