"""Azure exports: every public sample and header spelling, the two views never added, the newest run alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pytest
from bill_takes import Takes
from sqlalchemy import Engine

from core.errors import BadInput, Conflict
from ingest.billing.delivery import Accept

pytestmark = pytest.mark.db


@pytest.fixture
def azure(db: Engine, tmp_path: Path) -> Takes:
    return Takes(db, tmp_path, "azure-actual")


def line(cost: str = "1", date: str = "07/01/2026", **more: str) -> dict[str, str]:
    return {
        "BillingAccountId": "8611537", "BillingPeriodStartDate": "07/01/2026", "SubscriptionId": "0099", "Date": date,
        "MeterCategory": "Virtual Machines", "MeterName": "NC24ads A100 v4", "Quantity": "1", "UnitOfMeasure": "1 Hour",
        "CostInBillingCurrency": cost, "BillingCurrency": "EUR", "ResourceId": "/Subscriptions/0099/VM-a", "ChargeType": "Usage",
        "PricingModel": "OnDemand", "ReservationId": "", **more,
    }  # fmt: skip


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("file", "rows", "total"),
    [
        ("EA_ActualCost_Small.csv", 11, "8.5450077867419368"),
        ("koku_azure_version_2.csv", 5, "19.998413754"),
        ("koku_azure_v1_costreport_2019-07.csv", 3, "0.00011016"),
        ("opencost_values_Template.csv", 87, "16.393506212224391"),
        ("opencost_values_VirtualMachine.csv", 1, "4"),
        ("opencost_values_MissingBrackets.csv", 1, "4"),
    ],
)
def test_every_sample_sums_to_its_source(azure: Takes, realdata: Path, file: str, rows: int, total: str) -> None:
    masked = Accept(currency=file == "koku_azure_version_2.csv")  # its publisher wrote "MC" over the currency
    bills = azure.path(realdata / "billing/azure" / file, currency="USD", accept=masked)
    assert sum(bill.rows for bill in bills) == rows
    for basis in ("billed", "effective"):
        assert sum(Decimal(t[basis]) for bill in bills for t in bill.totals) == Decimal(total)


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("file", "total", "period"),
    [
        ("Enterprise", "0", "2021-05-01"),
        ("EnterpriseCamel", "0.012", "2021-02-01"),
        ("German", "0.075", "2021-02-01"),
        ("PayAsYouGo", "0.075", "2021-02-01"),
        ("YA", "0.075", "2021-02-01"),
    ],
)
def test_f4_header_spellings_read_the_same(azure: Takes, realdata: Path, file: str, total: str, period: str) -> None:
    (bill,) = azure.path(realdata / f"billing/azure/opencost_headersets/{file}.csv", currency="USD")
    assert (bill.totals[0]["billed"], bill.rows, str(bill.billing_period)) == (total, 1, period)
    (row,) = azure.charges("account", "resource_id", "service")
    assert row["account"].startswith("11111111-")
    assert row["resource_id"].startswith("/subscriptions/")
    assert row["service"]


@pytest.mark.realdata
def test_f4_a_line_without_a_cost_is_refused_never_zero(azure: Takes, realdata: Path) -> None:
    with pytest.raises(BadInput, match=r"BOM\.csv row 1: CostInBillingCurrency.*the cost is missing"):
        azure.path(realdata / "billing/azure/opencost_headersets/BOM.csv", currency="USD")


@pytest.mark.realdata
def test_an_empty_delivery_replaces_nothing(azure: Takes, realdata: Path) -> None:
    with pytest.raises(Conflict, match="holds no charge"):
        azure.path(realdata / "billing/azure/EA_NoRows.csv")


def test_b1_month_to_date_files_replace_each_other(azure: Takes) -> None:
    for day, cost in ((1, "10"), (2, "20"), (3, "30")):
        azure.rows([line(cost, f"07/{day:02d}/2026")])
    assert azure.by() == {"EUR": 30}


def test_b2_the_actual_and_the_amortised_month_are_never_added(azure: Takes, db: Engine, tmp_path: Path) -> None:
    azure.rows([line("300", "07/30/2026")], "actual.csv", export="actual")
    with pytest.raises(Conflict, match="both together would count twice"):
        Takes(db, tmp_path, "azure-amortized").rows([line("100", "07/30/2026")], "amortized.csv", export="amortized")
    assert azure.by() == {"EUR": 300}


@pytest.mark.parametrize(
    ("format", "kind", "right"),
    [("azure-actual", "UnusedReservation", "azure-amortized"), ("azure-amortized", "Purchase", "azure-actual")],
)
def test_a_file_of_the_other_view_is_refused(db: Engine, tmp_path: Path, format: str, kind: str, right: str) -> None:
    with pytest.raises(BadInput, match=rf"row 2: ChargeType.*'{kind}'.*--format {right}"):
        Takes(db, tmp_path, format).rows([line(), line(ChargeType=kind, PricingModel="Reservation")])


def test_commitments_by_view(azure: Takes, db: Engine, tmp_path: Path) -> None:
    azure.rows([line("3.25", ChargeType="Purchase", PricingModel="Reservation"), line("2"), line("-1", ChargeType="Refund")])
    assert azure.by("bucket") == {"commitment_fee": Decimal("3.25"), "gpu": 2, "refund": -1}
    amortised = Takes(db, tmp_path, "azure-amortized")
    committed = line("2", PricingModel="SavingsPlan", BillingPeriodStartDate="08/01/2026", Date="08/01/2026")
    amortised.rows([committed, {**committed, "ChargeType": "UnusedSavingsPlan", "CostInBillingCurrency": "1.25"}])
    rows = amortised.charges("bucket", filters={"billing_period": "2026-08-01"})
    assert {row["bucket"]: (row["billed_cost"], row["effective_cost"]) for row in rows} == {
        "gpu": (0, 2), "unused_commitment": (0, Decimal("1.25")),
    }  # fmt: skip


def test_what_a_line_says_is_kept_as_written(azure: Takes) -> None:
    tags = '"Name": "a","name": "b"'
    azure.rows(
        [
            line(
                "0.1234567890123456789012345678",
                "2026-07-01",
                Tags=tags,
                AdditionalInfo='"ServiceType": "Standard_NC24ads_A100_v4"',
            )
        ]
    )
    (row,) = azure.charges("account", "resource_id", "instance_type", "tag:Name", "tag:name", "bucket")
    assert row["billed_cost"] == Decimal("0.1234567890123456789012345678")
    assert (row["account"], row["resource_id"], row["instance_type"]) == (
        "0099",
        "/Subscriptions/0099/VM-a",
        "Standard_NC24ads_A100_v4",
    )
    assert (row["tag:Name"], row["tag:name"], row["bucket"]) == ("a", "b", "gpu")


def test_e1_the_invoice_currency_counts_and_currencies_are_not_added(azure: Takes) -> None:
    azure.rows([line("10", BillingCurrency="CNY", PricingCurrency="USD"), line("10", BillingCurrency="USD")])
    assert azure.by() == {"CNY": 10, "USD": 10}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"CostInBillingCurrency": "1,5"}, r"row 2: CostInBillingCurrency.*'1,5'"),
        ({"Date": "31.07.2026"}, r"row 2: Date.*'31\.07\.2026'.*MM/DD/YYYY"),
        ({"CostInBillingCurrency": "(null)"}, r"row 2: CostInBillingCurrency.*missing"),
    ],
)
def test_f7_a_refusal_names_row_column_and_value(azure: Takes, change: Mapping[str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        azure.rows([line(), {**line(), **change}])


def run_folder(folder: Path, run: str, submitted: str, files: Mapping[str, bytes], *, stated: int = 0) -> None:
    place = folder / "daily/20260701-20260731" / run
    place.mkdir(parents=True)
    for name, body in files.items():
        (place / name).write_bytes(body)
    manifest = {
        "exportConfig": {"exportName": "daily"},
        "runInfo": {"runId": run, "submittedTime": submitted, "startDate": "2026-07-01T00:00:00"},
        "blobs": [{"blobName": f"exports/{run}/{name}", "byteCount": stated or len(body)} for name, body in files.items()],
    }
    (place / "manifest.json").write_text(json.dumps(manifest))


def part(cost: str) -> bytes:
    return ("Date,CostInBillingCurrency,BillingCurrency,SubscriptionId\n07/02/2026," + cost + ",EUR,1\n").encode()


def test_b1_only_the_newest_run_of_a_month_counts(azure: Takes, tmp_path: Path) -> None:
    place = tmp_path / "container"
    run_folder(place, "b-old", "2026-07-02T01:00:00Z", {"part_0.csv": part("10")})
    run_folder(place, "a-new", "2026-07-03T01:00:00Z", {"part_0.csv": part("12"), "part_1.csv": part("8")})
    (bill,) = azure.path(place, needs_manifest=True)
    assert (bill.export, str(bill.billing_period), bill.totals[0]["billed"]) == ("daily", "2026-07-01", "20")


def test_a_run_shorter_than_its_manifest_states_is_refused(azure: Takes, tmp_path: Path) -> None:
    run_folder(tmp_path / "container", "r", "2026-07-02T01:00:00Z", {"part_0.csv": part("10")}, stated=10_000)
    with pytest.raises(BadInput, match=r"part_0\.csv"):
        azure.path(tmp_path / "container", needs_manifest=True)


def test_a_focus_list_cost_of_zero_is_unknown(db: Engine, tmp_path: Path) -> None:
    Takes(db, tmp_path, "azure-focus").rows([{
        "BilledCost": "5", "EffectiveCost": "5", "ListCost": "0", "ContractedCost": "0", "BillingCurrency": "USD",
        "ProviderName": "Microsoft", "BillingAccountId": "1", "BillingPeriodStart": "2026-07-01T00:00:00Z",
        "ChargePeriodStart": "2026-07-02T00:00:00Z", "ChargeCategory": "Usage", "ServiceName": "Marketplace",
    }])  # fmt: skip
    (row,) = Takes(db, tmp_path, "azure-focus").charges("provider")
    assert (row["provider"], row["billed_cost"], row["list_cost"], row["effective_without_list"]) == ("azure", 5, None, 5)
