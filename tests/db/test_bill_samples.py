"""Every public AWS and FOCUS sample, imported through the command's own path, sums to what its source says, exactly."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import Engine

from core.errors import BadInput
from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportedBill, ImportSettings
from models.billing_repo import charges_by, deliveries

pytestmark = [pytest.mark.db, pytest.mark.realdata]
NOW = datetime(2026, 12, 1, tzinfo=UTC)
COLUMNS = {
    "BilledCost": "billed", "EffectiveCost": "effective", "ListCost": "list", "ContractedCost": "contracted",
    "lineItem/UnblendedCost": "billed", "savingsPlan/SavingsPlanEffectiveCost": "effective",
}  # fmt: skip
PREFIXES = ("focus-spec-1.2/", "focus-spec-draft/", "aws/")


def samples(folder: Path) -> list[dict[str, str]]:
    with (folder / "billing/sources.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [row for row in rows if row["file"].startswith(PREFIXES) and row["total_of_cost_columns"]]


def take(db: Engine, data_dir: Path, path: Path, format: str, *, export: str = "") -> list[ImportedBill]:
    options = BillOptions(source="" if format.startswith("aws") else "acme", export=export, currency="USD")
    job = BillImport(ImportSettings(db, data_dir, format, ADAPTERS[format], options, Accept(overlap=True, times=True), NOW))
    store = LocalFiles(path)
    return [bill for found in find_deliveries(store, needs_manifest=False) for bill in job.run(store, found)]


def test_every_sample_sums_to_its_source(db: Engine, realdata: Path, tmp_path: Path) -> None:
    checked = 0
    for sample in samples(realdata):
        path = realdata / "billing" / sample["file"]
        done = take(db, tmp_path, path, "aws-cur" if sample["file"].startswith("aws/") else "focus", export=sample["file"])
        for part in sample["total_of_cost_columns"].split("; "):
            column, _, total = part.partition("=")
            if column not in COLUMNS:
                continue
            found = sum((Decimal(t[COLUMNS[column]] or 0) for bill in done for t in bill.totals), Decimal(0))
            assert found == Decimal(total), (sample["file"], column)
            checked += 1
        assert sum(bill.rows for bill in done) == int(sample["rows"]), sample["file"]
    assert checked > 90
    with db.connect() as connection:
        for bill in deliveries(connection):
            rows = charges_by(connection, ["bucket"], filters={"export": bill.export, "billing_period": str(bill.billing_period)})
            for total in bill.totals:
                ours = [row for row in rows if row["currency"] == total["currency"]]
                assert sum(row["billed_cost"] for row in ours) == Decimal(total["billed"])
                assert sum(row["effective_cost"] for row in ours) == Decimal(total["effective"])


def test_the_delivery_of_a_report_is_found_by_its_manifest(db: Engine, realdata: Path, tmp_path: Path) -> None:
    """Its rows name three billing months: each is counted in its own month, and the delivery is August's."""
    (bill,) = take(db, tmp_path, realdata / "billing/aws/koku-local-delivery", "aws-cur")
    assert (bill.export, str(bill.billing_period), bill.rows) == ("koku-local", "2018-08-01", 13_380)
    with db.connect() as connection:
        months = {str(row["billing_period"]): row["rows"] for row in charges_by(connection, ["billing_period"])}
    assert months == {"2018-06-01": 3300, "2018-07-01": 9304, "2018-08-01": 776}
    assert any("12,604 charges name another billing period" in note for note in bill.notes)


def test_c4_both_styles_of_correction_leave_the_same_total(db: Engine, realdata: Path, tmp_path: Path) -> None:
    folder = realdata / "billing/focus-spec-draft"
    for style in ("delta", "ledger"):
        (bill,) = take(db, tmp_path, folder / f"correction_closed_s1_partial_reallocation_{style}.csv", "focus")
        assert (bill.totals[0]["billed"], bill.totals[0]["effective"]) == ("0", "0")
    take(db, tmp_path, folder / "correction_closed_s2_late_arriving_usage_ledger.csv", "focus", export="late")
    with db.connect() as connection:
        late = charges_by(connection, ["bucket", "billing_period", "month"], filters={"export": "late"})
    row = late[0]
    assert (row["bucket"], str(row["billing_period"]), str(row["month"])) == ("correction", "2025-06-01", "2025-05-01")
    assert row["billed_cost"] == 1500


def test_final_only_when_the_invoice_is_named(db: Engine, realdata: Path, tmp_path: Path) -> None:
    first = take(db, tmp_path, realdata / "billing/aws/koku_cur_2023-06-01_not_final_NOK.csv", "aws-cur", export="nok")[0]
    then = take(db, tmp_path, realdata / "billing/aws/koku_cur_2023-06-01_final_savingsplan_NOK.csv", "aws-cur", export="nok")[0]
    assert (first.is_final, then.is_final, then.invoice_ids, then.replaces) == (False, True, ["987654321"], first.version)


def test_a_bill_that_names_no_currency_is_asked_for_it(db: Engine, realdata: Path, tmp_path: Path) -> None:
    path = realdata / "billing/focus-spec-1.2/commitment_discount_usage_scenario_1.csv"
    job = BillImport(ImportSettings(db, tmp_path, "focus", ADAPTERS["focus"], BillOptions("acme"), Accept(times=True), NOW))
    store = LocalFiles(path)
    with pytest.raises(BadInput, match=r"row 1: currency.*--currency"):
        job.run(store, find_deliveries(store, needs_manifest=False)[0])
