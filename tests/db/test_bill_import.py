"""A delivery replaces its billing period whole or not at all (faults B, C, E, F, G of the fault log)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bill_lines import csv_bytes, cur_line, write_cur
from sqlalchemy import Engine

from core.errors import BadInput, Conflict
from core.windows import Window
from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportedBill, ImportSettings
from models.billing_repo import charges_by, deliveries, restated_charges

pytestmark = pytest.mark.db
START = datetime(2026, 8, 1, tzinfo=UTC)
Rows = Iterable[Mapping[str, str]]


class Bills:
    """One data folder and database; each import an hour after the former."""

    def __init__(self, db: Engine, folder: Path) -> None:
        self.db, self.folder, self.now = db, folder, START

    def take(
        self, path: Path, format: str = "aws-cur", *, accept: Accept | None = None, dry_run: bool = False, **options: Any
    ) -> list[ImportedBill]:
        self.now += timedelta(hours=1)
        job = BillImport(
            ImportSettings(
                self.db, self.folder / "data", format, ADAPTERS[format], BillOptions(**options), accept or Accept(), self.now,
                dry_run=dry_run,
            )
        )  # fmt: skip
        store = LocalFiles(path)
        return [bill for found in find_deliveries(store, needs_manifest=True) for bill in job.run(store, found)]

    def file(self, rows: Rows, name: str = "cur.csv", **options: Any) -> list[ImportedBill]:
        return self.take(write_cur(self.folder / name, rows), **{"export": "main", **options})

    def focus(self, rows: Rows, name: str = "focus.csv", **options: Any) -> list[ImportedBill]:
        return self.take(write_cur(self.folder / name, rows), "focus", **{"export": "main", **options})

    def rows(self, *keys: str, **more: Any) -> list[dict[str, Any]]:
        with self.db.connect() as connection:
            return charges_by(connection, keys, **more)

    def billed(self, *keys: str, **more: Any) -> dict[Any, Decimal]:
        return {tuple(str(row[key]) for key in keys) or row["currency"]: row["billed_cost"] for row in self.rows(*keys, **more)}

    def versions(self) -> list[tuple[int, str]]:
        with self.db.connect() as connection:
            return [(bill.version, bill.status) for bill in deliveries(connection, every=True)]


@pytest.fixture
def bills(db: Engine, tmp_path: Path) -> Bills:
    return Bills(db, tmp_path)


def usage(cost: str, day: int = 1, **more: Any) -> dict[str, str]:
    return cur_line("Usage", {"unblended": cost}, start=f"2026-07-{day:02d}T05:00:00Z", **more)


def focus_line(cost: str = "1", **more: str) -> dict[str, str]:
    return {
        "BilledCost": cost, "EffectiveCost": cost, "BillingCurrency": "USD", "ProviderName": "Solora", "BillingAccountId": "0099",
        "BillingPeriodStart": "2026-07-01T00:00:00Z", "ChargePeriodStart": "2026-07-02T00:00:00Z", "ChargeCategory": "Usage",
        "ServiceName": "X", **more,
    }  # fmt: skip


def manifest(folder: Path, files: Mapping[str, bytes | None], *, assembly: str = "a1") -> Path:
    """A legacy report's month: what the manifest names, and of that what is there."""
    month = folder / "report" / "20260701-20260801"
    (month / assembly).mkdir(parents=True, exist_ok=True)
    for name, body in files.items():
        if body is not None:
            (month / assembly / name).write_bytes(body)
    text = {
        "assemblyId": assembly, "reportName": "report", "billingPeriod": {"start": "20260701T000000.000Z"},
        "reportKeys": [f"prefix/report/20260701-20260801/{assembly}/{name}" for name in files],
    }  # fmt: skip
    (month / "report-Manifest.json").write_text(json.dumps(text))
    return folder / "report"


def packed(rows: Rows) -> bytes:
    return gzip.compress(csv_bytes(rows))


def test_b1_month_to_date_files_replace_each_other(bills: Bills) -> None:
    for days, cost in ((1, "10"), (2, "20"), (3, "30")):
        bills.file([usage(str(Decimal(cost) / days), day) for day in range(1, days + 1)])
    assert bills.billed() == {"USD": 30}
    assert bills.versions() == [(1, "superseded"), (2, "superseded"), (3, "current")]


def test_the_same_delivery_again_changes_nothing(bills: Bills) -> None:
    rows = [usage("10")]
    (first,) = bills.file(rows)
    (again,) = bills.file(rows)
    assert (first.status, again.status, again.version) == ("current", "unchanged", 1)
    assert bills.versions() == [(1, "current")]


def test_a_dry_run_shows_the_difference_and_keeps_nothing(bills: Bills) -> None:
    bills.file([usage("10")])
    (dry,) = bills.file([usage("12")], dry_run=True)
    assert (dry.status, dry.restated[0].billed) == ("dry run", 2)
    assert bills.billed() == {"USD": 10}
    assert not list((bills.folder / "data/bills").glob(".work-*"))


def test_b2_two_exports_of_one_scope_are_not_added(bills: Bills) -> None:
    whole = [usage("10", day) for day in range(1, 31)]
    bills.file(whole, "a.csv", export="a")
    with pytest.raises(Conflict, match=r"same account and days as export a"):
        bills.file(whole[:10], "b.csv", export="b")
    assert bills.billed("export") == {("a",): 300}
    bills.file(whole[:10], "b.csv", export="b", accept=Accept(instead_of="a"))
    assert bills.billed("export") == {("b",): 100}


def test_b2_a_shorter_delivery_does_not_replace_a_longer_one(bills: Bills) -> None:
    bills.file([usage("10", day) for day in range(1, 31)])
    shorter = [usage("10", day) for day in range(1, 11)]
    with pytest.raises(Conflict, match="ends on 2026-07-10"):
        bills.file(shorter)
    assert bills.billed() == {"USD": 300}
    bills.file(shorter, accept=Accept(shorter=True))
    assert bills.billed() == {"USD": 100}


@pytest.mark.parametrize("name", ["a__b", "../a", "a/b", "ä b", "a.b"])
def test_b2_an_export_may_have_any_name(bills: Bills, name: str) -> None:
    bills.file([usage("1")], export=name)
    assert bills.billed("export") == {(name,): 1}
    assert all("bills" in path.parts for path in bills.folder.joinpath("data").rglob("charges.parquet"))


def test_an_empty_delivery_wipes_no_month(bills: Bills) -> None:
    bills.file([usage("10")])
    header = csv_bytes([usage("1")]).split(b"\r\n")[0] + b"\r\n"
    path = bills.folder / "empty.csv"
    path.write_bytes(header)
    with pytest.raises(Conflict, match="holds no charge"):
        bills.take(path, export="main")
    assert bills.billed() == {"USD": 10}


def test_b4_a_closed_month_that_changes_is_restated_row_by_row(bills: Bills, db: Engine) -> None:
    """1000.00 invoiced, then 1012.34: both stay, and the difference is added + removed + changed, to the cent."""
    before = [
        usage("900", 1, invoice="I-1"),
        usage("60", 2, resource="i-2", invoice="I-1"),
        usage("40", 3, resource="i-3", invoice="I-1"),
    ]
    after = [
        usage("900", 1, invoice="I-1"),
        usage("70", 2, resource="i-2", invoice="I-1"),
        usage("42.34", 4, resource="i-4", invoice="I-1"),
    ]
    (first,) = bills.file(before)
    sent_at = bills.now
    (then,) = bills.file(after)
    (change,) = then.restated
    assert (first.is_final, first.totals[0]["billed"], then.totals[0]["billed"]) == (True, "1000", "1012.34")
    assert (change.billed, change.added, change.removed, change.changed) == (Decimal("12.34"), 1, 1, 1)
    assert (change.billed_added, change.billed_removed, change.billed_changed) == (Decimal("42.34"), -40, 10)
    with db.connect() as connection:
        old, new = deliveries(connection, every=True)
        rows = restated_charges(connection, old, new)
    assert [(row["change"], row["billed"]) for row in rows] == [("added", Decimal("42.34")), ("removed", -40), ("changed", 10)]
    assert bills.billed(as_of=sent_at) == {"USD": 1000}
    assert bills.billed() == {"USD": Decimal("1012.34")}


def test_an_invoice_number_alone_is_no_restatement(bills: Bills) -> None:
    (first,) = bills.file([usage("10")])
    (then,) = bills.file([usage("10", invoice="I-1")])
    assert (first.is_final, then.is_final) == (False, True)
    assert [(c.added, c.removed, c.changed, c.billed) for c in then.restated] == [(0, 0, 0, 0)]


def test_an_older_delivery_does_not_come_back_unasked(bills: Bills) -> None:
    bills.file([usage("10")])
    bills.file([usage("12")])
    with pytest.raises(Conflict, match="version 1"):
        bills.file([usage("10")])
    bills.file([usage("10")], accept=Accept(older=True))
    assert bills.billed() == {"USD": 10}


def test_b7_every_file_of_the_manifest_is_read(bills: Bills) -> None:
    place = manifest(
        bills.folder, {"r-1.csv.gz": packed([usage("1")]), "r-2.csv.gz": packed([usage("2")]), "r-3.csv.gz": packed([usage("3")])}
    )
    (place / "20260701-20260801/a1/left-over.csv.gz").write_bytes(packed([usage("99")]))
    (bill,) = bills.take(place)
    assert (bill.export, bill.billing_period, bill.rows, bills.billed()) == ("report", date(2026, 7, 1), 3, {"USD": 6})


def test_b7_a_file_that_is_missing_refuses_the_delivery_and_the_former_stays(bills: Bills) -> None:
    bills.take(manifest(bills.folder, {"r-1.csv.gz": packed([usage("1")])}))
    place = manifest(
        bills.folder, {"r-1.csv.gz": packed([usage("1")]), "r-2.csv.gz": None, "r-3.csv.gz": packed([usage("3")])}, assembly="a2"
    )
    for _ in range(2):
        with pytest.raises(BadInput, match=r"1 of the 3 files.*r-2\.csv\.gz"):
            bills.take(place)
    assert bills.billed() == {"USD": 1}
    assert bills.versions() == [(1, "current"), (2, "refused")]


def test_b7_a_file_cut_short_refuses_the_delivery_and_names_it(bills: Bills) -> None:
    bills.take(manifest(bills.folder, {"r-1.csv.gz": packed([usage("1")])}))
    long = packed([usage(str(n), resource=f"i-{n * 7919}") for n in range(2000)])
    place = manifest(bills.folder, {"r-1.csv.gz": long[: len(long) // 2]}, assembly="a2")
    with pytest.raises(BadInput, match=r"r-1\.csv\.gz: is cut short"):
        bills.take(place)
    assert bills.billed() == {"USD": 1}


def test_data_files_without_their_manifest_are_no_delivery_yet(bills: Bills) -> None:
    folder = bills.folder / "half"
    write_cur(folder / "r-1.csv.gz", [usage("1")])
    write_cur(folder / "r-2.csv.gz", [usage("2")])
    with pytest.raises(BadInput, match="2 data files and no manifest"):
        bills.take(folder)


def test_c1_invoice_month_and_usage_month_are_two_answers(bills: Bills) -> None:
    bills.file(
        [
            cur_line("Usage", {"unblended": "5"}, start="2025-07-31T10:00:00Z", period="2025-08-01T00:00:00Z"),
            cur_line("Usage", {"unblended": "3"}, start="2025-08-01T10:00:00Z", period="2025-07-01T00:00:00Z"),
        ]
    )
    assert bills.billed("billing_period") == {("2025-07-01",): 3, ("2025-08-01",): 5}
    assert bills.billed("month") == {("2025-07-01",): 5, ("2025-08-01",): 3}
    july = Window(datetime(2025, 7, 1, tzinfo=UTC), datetime(2025, 8, 1, tzinfo=UTC))
    assert bills.billed(days=july) == {"USD": 5}
    assert bills.billed(billing_months=(date(2025, 7, 1), date(2025, 8, 1))) == {"USD": 3}


def test_times_with_an_offset_are_instants(bills: Bills) -> None:
    bills.focus([focus_line(ChargePeriodStart="2026-08-01T00:30:00+08:00")])
    assert bills.billed("day") == {("2026-07-31",): 1}


def test_d2_d3_gross_credit_and_net_are_all_shown(bills: Bills) -> None:
    bills.file([usage("100"), cur_line("Credit", {"unblended": "-30"}, resource="")])
    assert bills.billed("bucket") == {("credit",): -30, ("gpu",): 100}
    assert bills.billed() == {"USD": 70}


def test_e1_currencies_are_never_added(bills: Bills) -> None:
    bills.file([usage("10"), usage("10", currency="CNY")])
    assert bills.billed() == {"CNY": 10, "USD": 10}


def test_f1_tags_that_differ_in_case_are_two(bills: Bills) -> None:
    bills.file([usage("1", more={"resourceTags/user:Name": "a", "resourceTags/user:name": "b"})])
    assert bills.billed("tag:Name", "tag:name") == {("a", "b"): 1}


def test_f5_columns_come_and_go_but_a_cost_column_must_be_there(bills: Bills) -> None:
    bills.file([usage("1")])
    with_plan = [usage("1"), cur_line("SavingsPlanCoveredUsage", {"unblended": "2", "sp_effective": "1"})]
    bills.file(with_plan)
    assert [row["effective_cost"] for row in bills.rows()] == [2]
    del with_plan[1]["savingsPlan/SavingsPlanEffectiveCost"]
    with pytest.raises(BadInput, match=r"row 2: savingsPlan/SavingsPlanEffectiveCost"):
        bills.file(with_plan)
    with pytest.raises(BadInput, match="lineItem/UnblendedCost: the file has no such column"):
        bills.file([{k: v for k, v in usage("1").items() if k != "lineItem/UnblendedCost"}])


def test_f6_ids_are_text(bills: Bills) -> None:
    bills.file([usage("1", account="0099999999999")])
    assert bills.billed("account", "billing_account") == {("0099999999999", "099999999999"): 1}


@pytest.mark.parametrize("nothing", ["", "NULL", "null", "(null)", "None", "N/A", "-"])
def test_f7_null_spellings_are_nothing(bills: Bills, nothing: str) -> None:
    bills.focus([focus_line(ResourceId=nothing, InvoiceId=nothing, ListCost=nothing)])
    (row,) = bills.rows("resource_id", "invoice_id")
    assert (row["resource_id"], row["invoice_id"], row["list_cost"]) == ("", "", None)


@pytest.mark.parametrize(
    ("written", "is_"),
    [
        ("$10,000.00 ", "10000"),
        ("5e-06", "0.000005"),
        ("1.2345678901234567890123456789", "1.2345678901234567890123456789"),
        ("-1,234.5", "-1234.5"),
    ],
)
def test_f7_money_as_people_write_it_is_read_exactly(bills: Bills, written: str, is_: str) -> None:
    bills.focus([focus_line(written)])
    assert bills.billed() == {"USD": Decimal(is_)}


@pytest.mark.parametrize("cell", ["ten", "1.234,56", "1,5", "NaN", "inf", "1_000", "(1.50)"])
def test_f7_anything_else_in_a_cost_stops_the_delivery_by_row(bills: Bills, cell: str) -> None:
    with pytest.raises(BadInput, match=r"focus\.csv row 2: BilledCost: is no number") as caught:
        bills.focus([focus_line("1"), focus_line(cell, EffectiveCost="1")])
    assert caught.value.value == cell
    assert bills.versions() == []


def test_amounts_that_38_digits_cannot_hold_are_refused_and_never_wrap(bills: Bills) -> None:
    with pytest.raises(BadInput, match="more than 38 digits"):
        bills.focus([focus_line("99999999999.1"), focus_line("0.0000000000000000000000000001")])


def test_f8_rows_without_a_resource_keep_their_cost(bills: Bills) -> None:
    bills.file([usage("1"), usage("2", resource=""), cur_line("Tax", {"unblended": "0.3"}, resource="")])
    assert bills.billed("resource_id") == {("",): Decimal("2.3"), ("i-1",): 1}


def test_a2_a_negation_is_no_usage_and_an_unused_reservation_is_idle_hours(bills: Bills) -> None:
    reservation = "arn:aws-cn:ec2:cn-north-1:1:capacity-reservation/cr-1"
    bills.file(
        [
            cur_line("SavingsPlanCoveredUsage", {"unblended": "2", "sp_effective": "1.5"}),
            cur_line("SavingsPlanNegation", {"unblended": "-2"}, resource=""),
            cur_line("Usage", {"unblended": "0"}, usage_type="Reservation:p4d.24xlarge", usage="2", resource=reservation),
            cur_line("Usage", {"unblended": "7"}, usage_type="UnusedBox:p4d.24xlarge", resource=reservation),
        ]
    )
    found = {row["bucket"]: (row["billed_cost"], row["effective_cost"], row["hours"]) for row in bills.rows("bucket")}
    assert found == {
        "commitment_negation": (-2, 0, None), "gpu": (2, Decimal("1.5"), 1), "unused_reservation": (7, 7, 1),
    }  # fmt: skip


def test_g1_parquet_types_may_differ_by_file(bills: Bills) -> None:
    """Costs double in one file and decimal in the other; a column all null in one and text in the other; tags as a map."""
    rows = usage("1")
    place = manifest(bills.folder, {"r-1.snappy.parquet": None, "r-2.snappy.parquet": None})
    folder = place / "20260701-20260801/a1"
    names = {name: name.replace("lineItem/", "line_item_").replace("bill/", "bill_") for name in rows}
    shared = {
        names[name]: pa.array([value]) for name, value in rows.items() if "Unblended" not in name and "ResourceId" not in name
    }
    one = {**shared, "line_item_unblended_cost": pa.array([0.1]), "line_item_resource_id": pa.array([None], pa.int32())}
    two = {
        **shared,
        "line_item_unblended_cost": pa.array([Decimal("0.200000001")], pa.decimal128(38, 9)),
        "line_item_resource_id": pa.array(["i-9"]),
        "resource_tags": pa.array([[("user_team", "x"), ("Team", "y")]], pa.map_(pa.string(), pa.string())),
    }
    pq.write_table(pa.table(one), folder / "r-1.snappy.parquet")
    pq.write_table(pa.table(two), folder / "r-2.snappy.parquet")
    bills.take(place)
    assert bills.billed("resource_id", "tag:team") == {("", ""): Decimal("0.1"), ("i-9", "x"): Decimal("0.200000001")}


def test_unknown_columns_stay_in_the_lines(bills: Bills) -> None:
    (bill,) = bills.focus([focus_line(x_Something="kept", CredentialId="key-1")])
    (path,) = (bills.folder / "data/bills").rglob("lines-*.parquet")
    table = pq.read_table(path)
    assert (table["x_Something"].to_pylist(), table["CredentialId"].to_pylist(), bill.rows) == (["kept"], ["key-1"], 1)


def test_h6_allocated_rows_repeat_their_origin_or_are_the_cost(bills: Bills) -> None:
    origin = focus_line("24", ResourceId="i-1", AllocatedMethodId="")
    pods = [focus_line(cost, ResourceId="i-1", AllocatedMethodId="m", AllocatedResourceId=f"pod-{cost}") for cost in ("18", "6")]
    bills.focus([origin, *pods], "with.csv")
    (row,) = [row for row in bills.rows("bucket") if row["bucket"] == "split_memo"]
    assert (bills.billed(), row["memo_cost"]) == ({"USD": 24}, 24)
    bills.focus(pods, "without.csv")
    assert bills.billed() == {"USD": 24}


def test_data_exports_in_both_layouts(bills: Bills) -> None:
    """CUR 2.0, create-new: the newest execution's manifest says which files; maps come as JSON in CSV."""
    root = bills.folder / "export"
    line = {name.replace("/", "_"): value for name, value in usage("5").items()}
    line |= {"product": '{"instance_type": "p5.48xlarge", "region": "us-east-1"}', "resource_tags": '{"user_team": "search"}'}
    for execution in ("e1", "e2"):
        where = f"data/BILLING_PERIOD=2026-07/{execution}/export-00001.csv.gz"
        write_cur(root / where, [line] if execution == "e2" else [line, line])
        inner = root / f"metadata/BILLING_PERIOD=2026-07/{execution}/export-Manifest.json"
        inner.parent.mkdir(parents=True)
        inner.write_text(
            json.dumps({"executionId": execution, "dataFiles": [f"s3://bucket/prefix/export/{where}"], "columns": []})
        )
    outer = root / "metadata/BILLING_PERIOD=2026-07/export-Manifest.json"
    outer.write_text(inner.read_text())
    (bill,) = bills.take(root)
    assert (bill.export, bill.billing_period, bill.rows) == ("export", date(2026, 7, 1), 1)
    assert bills.billed("bucket", "instance_type", "region", "tag:team") == {("gpu", "p5.48xlarge", "us-east-1", "search"): 5}
