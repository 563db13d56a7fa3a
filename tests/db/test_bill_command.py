"""``tokenfuse ingest bill``, ``show bills`` and ``show charges``: what they print, and what they say of a refused delivery."""

from __future__ import annotations

from pathlib import Path

import pytest
from bill_lines import cur_line, write_cur
from cli_command import Command

pytestmark = pytest.mark.db


@pytest.fixture
def month(tmp_path: Path) -> Path:
    rows = [
        cur_line(
            "SavingsPlanRecurringFee", {"unblended": "52.40", "sp_total": "52.40", "sp_used": "26.20"}, resource="", invoice="I"
        ),
        cur_line("SavingsPlanCoveredUsage", {"unblended": "39.30", "sp_effective": "26.20", "public": "39.30"}, invoice="I"),
        cur_line("SavingsPlanNegation", {"unblended": "-39.30"}, resource="", invoice="I"),
        cur_line("Tax", {"unblended": "5.24"}, resource="", invoice="I", start="2026-07-31T00:00:00Z"),
    ]
    return write_cur(tmp_path / "july.csv.gz", rows)


def test_a_bill_by_bucket_on_both_bases(command: Command, month: Path) -> None:
    code, said, _ = command("ingest", "bill", str(month), "--format", "aws-cur")
    assert (code, said["refused"]) == (0, [])
    (bill,) = said["imported"]
    assert (bill["status"], bill["is_final"], bill["invoice_ids"]) == ("current", True, ["I"])
    assert bill["totals"] == [{"currency": "USD", "billed": "57.64", "effective": "57.64", "list": "39.3", "contracted": "39.3"}]
    _, rows, _ = command("show", "charges")
    costs = {row["bucket"]: (row["billed_cost"], row["effective_cost"]) for row in rows}
    assert costs == {
        "commitment_fee": ("52.4", "0"), "commitment_negation": ("-39.3", "0"), "gpu": ("39.3", "26.2"), "tax": ("5.24", "5.24"),
        "unused_commitment": ("0", "26.2"),
    }  # fmt: skip
    assert {row["billing_period"] for row in rows} == {"2026-07-01"}


def test_charges_by_days_of_use_and_by_invoice(command: Command, month: Path) -> None:
    command("ingest", "bill", str(month), "--format", "aws-cur")
    _, used, _ = command("show", "charges", "--by", "bucket", "--from", "2026-07-31", "--to", "2026-08-01")
    assert [(row["bucket"], row["billed_cost"]) for row in used] == [("tax", "5.24")]
    _, invoiced, _ = command("show", "charges", "--by", "source", "--invoice-from", "2026-07", "--invoice-to", "2026-08")
    assert [row["billed_cost"] for row in invoiced] == ["57.64"]
    code, _, error = command("show", "charges", "--by", "bucket", "--invoice-from", "July")
    assert (code, "--invoice-from: is not a month" in error) == (2, True)
    code, _, error = command("show", "charges", "--by", "flavour")
    assert (code, "is not a key of charges" in error) == (2, True)


def test_a_refused_delivery_says_why_and_exits_with_2(command: Command, month: Path) -> None:
    command("ingest", "bill", str(month), "--format", "aws-cur")
    month.write_bytes(month.read_bytes()[:-20])
    code, said, _ = command("ingest", "bill", str(month), "--format", "aws-cur")
    assert (code, said["imported"]) == (2, [])
    assert "july.csv.gz: is cut short" in said["refused"][0]["reason"]
    _, bills, _ = command("show", "bills", "--all")
    assert [(bill["version"], bill["status"]) for bill in bills] == [(1, "current")]


def test_people_read_the_difference_to_the_former_version(command: Command, month: Path, tmp_path: Path) -> None:
    command("ingest", "bill", str(month), "--format", "aws-cur", "--export", "cur")
    later = write_cur(tmp_path / "later.csv", [cur_line("Usage", {"unblended": "60"}, start="2026-07-31T00:00:00Z")])
    code, _, error = command("ingest", "bill", str(later), "--format", "aws-cur", "--export", "cur", "--dry-run", as_json=False)
    assert code == 0
    assert "version 2: dry run, 1 rows, not final" in error
    assert "against version 1: USD billed +2.36" in error
    _, bills, _ = command("show", "bills")
    assert [bill["version"] for bill in bills] == [1]


def test_a_place_that_is_not_there(command: Command, tmp_path: Path) -> None:
    code, _, error = command("ingest", "bill", str(tmp_path / "nothing"), "--format", "focus")
    assert (code, "does not exist" in error) == (2, True)


@pytest.fixture
def quarter(tmp_path: Path) -> Path:
    """A FOCUS file without a manifest whose lines are of three billing periods."""
    head = (
        "BilledCost,EffectiveCost,BillingCurrency,BillingPeriodStart,"
        "ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ProviderName,ServiceName"
    )
    rows = [f"{month}.5,{month}.5,USD,2026-0{month}-01,2026-0{month}-02,2026-0{month}-03,Usage,acme,vm" for month in (5, 6, 7)]
    file = tmp_path / "quarter.csv"
    file.write_text("\n".join([head, *rows]) + "\n")
    return file


def billed(command: Command) -> dict[str, str]:
    _, rows, _ = command("show", "charges", "--by", "billing_period")
    return {row["billing_period"][:7]: row["billed_cost"] for row in rows}


def test_one_month_of_a_file_without_a_manifest(command: Command, quarter: Path) -> None:
    file = (str(quarter), "--format", "focus")
    code, said, _ = command("ingest", "bill", *file, "--month", "2026-06")
    assert (code, [one["billing_period"] for one in said["imported"]]) == (0, ["2026-06-01"])
    assert billed(command) == {"2026-06": "6.5"}
    _, said, _ = command("ingest", "bill", *file, "--month", "2026-06")
    assert [one["status"] for one in said["imported"]] == ["unchanged"]
    assert command("ingest", "bill", *file, "--month", "2026-05")[0] == 0
    assert billed(command) == {"2026-05": "5.5", "2026-06": "6.5"}
    assert command("ingest", "bill", *file)[0] == 0
    assert billed(command) == {"2026-05": "5.5", "2026-06": "6.5", "2026-07": "7.5"}, "one month read before hides no other"


def test_a_month_that_is_not_there_is_named_with_those_that_are(command: Command, quarter: Path) -> None:
    code, said, _ = command("ingest", "bill", str(quarter), "--format", "focus", "--month", "2026-09")
    assert (code, said["imported"]) == (2, [])
    (refused,) = said["refused"]
    assert "month: holds nothing of this billing period (value '2026-09')" in refused["reason"]
    assert "it holds 2026-05, 2026-06, 2026-07" in refused["reason"]
    assert billed(command) == {}


def test_a_month_that_no_manifest_names_is_named_too(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "bill-folder"
    folder.mkdir()
    for month in ("202606", "202607"):
        (folder / f"1234_BillingItemDetail_{month}.csv").write_text("x\n")
    code, _, error = command("ingest", "bill", str(folder), "--format", "alibaba", "--month", "2026-09")
    assert (code, "it holds 2026-06, 2026-07" in error) == (2, True)


@pytest.mark.parametrize("words", [("ingest", "bill", "x.csv", "--format", "focus"), ("reconcile",)])
def test_what_is_no_currency_is_refused(command: Command, words: tuple[str, ...]) -> None:
    code, _, error = command(*words, "--currency", "usx")
    assert (code, "--currency: is not a currency of ISO 4217 (value 'USX')" in error, "did you mean" in error) == (2, True, True)
