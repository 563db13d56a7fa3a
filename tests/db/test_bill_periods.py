"""A month of bills is the same money wherever it is asked for, whatever day its billing periods begin on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from focus_command import FocusCommand, focus, focus_line

pytestmark = pytest.mark.db
__all__ = ["focus"]
FROM_THE_15TH = {"BillingPeriodStart": "2026-07-15T00:00:00Z", "BillingPeriodEnd": "2026-08-15T00:00:00Z"}
JULY = ("--invoice-from", "2026-07", "--invoice-to", "2026-08")


def used(day: str, **more: str) -> Mapping[str, str]:
    return focus_line(ChargePeriodStart=f"{day}T00:00:00Z", ChargePeriodEnd=f"{day}T12:00:00Z", **more)


def test_a_billing_period_belongs_to_the_month_of_its_first_day(focus: FocusCommand) -> None:
    focus.take([used("2026-07-20", **FROM_THE_15TH), used("2026-08-03", **FROM_THE_15TH)])
    focus.take([used("2026-07-20", BillingAccountId="2")], name="whole.csv")
    assert focus.charged(*JULY) == 30
    assert focus.reconciled("--period", "2026-07") == {"2026-07-01": 10, "2026-07-15": 20}
    assert focus.reconciled("--period", "2026-08") == {}
    assert focus.reconciled("--by-usage", "--period", "2026-07") == {"2026-07-01": 20}
    assert focus.charged("--from", "2026-07-01", "--to", "2026-08-01") == 20
    _, rows, _ = focus.run("reconcile", "--period", "2026-07")
    months = {row["bucket"]: row["hint"] for row in rows if row["step"] == "months" and row["billing_period"] == "2026-07-15"}
    assert months == {"used in 2026-07": "", "used in 2026-08": ""}


def test_tables_name_a_period_by_its_first_day_where_it_is_not_the_1st(focus: FocusCommand) -> None:
    _, said, _ = focus.run("ingest", "bill", str(_file(focus)), "--format", "focus", as_json=False)
    assert "2026-07-15 version 1" in said
    _, said, _ = focus.run("reconcile", "--period", "2026-07", as_json=False)
    assert "Invoiced for 2026-07-15" in said


def _file(focus: FocusCommand) -> object:
    focus.take([used("2026-07-20", **FROM_THE_15TH)], "--dry-run")
    return focus.folder / "focus.csv"


def test_one_month_is_read_by_its_periods_first_days(focus: FocusCommand) -> None:
    rows = [
        used("2026-07-20", **FROM_THE_15TH),
        used("2026-07-21"),
        used("2026-09-02", BillingPeriodStart="2026-09-01T00:00:00Z"),
    ]
    focus.take(rows, "--month", "2026-07")
    assert focus.reconciled() == {"2026-07-01": 10, "2026-07-15": 10}


def test_a_charge_without_a_day_is_in_both_views_of_use_by_name(focus: FocusCommand) -> None:
    focus.take(
        [focus_line(ChargePeriodStart="", ChargePeriodEnd=""), focus_line(), focus_line(**FROM_THE_15TH, ChargePeriodStart="")]
    )
    july = ("--from", "2026-07-01", "--to", "2026-08-01")
    assert focus.charged(*july) == 30
    assert focus.charged("--by", "month", "--where", "month=2026-07-01") == 30
    assert focus.reconciled("--by-usage") == {"2026-07-01": 30}
    _, rows, _ = focus.run("reconcile", "--by-usage")
    assert [row["billed_cost"] for row in rows if row["bucket"] == "no day of use told"] == ["20"]
    _, rows, _ = focus.run("show", "charges", "--by", "day", *july)
    assert {row["day"]: row["billed_cost"] for row in rows} == {None: "20", "2026-07-03": "10"}
    _, said, _ = focus.run("show", "charges", "--by", "bucket", *july, as_json=False)
    assert "2 charges tell no day of use (USD 20 billed): they count in the month their billing period begins in." in said


def test_period_and_currency_are_keys_too_and_a_wrong_one_is_named_where_it_stands(focus: FocusCommand) -> None:
    focus.take([focus_line()])
    _, rows, _ = focus.run(
        "show", "charges", "--by", "period,currency", "--where", "currency=USD", "--where", "period=2026-07-01"
    )
    assert [(row["billing_period"], row["currency"], row["billed_cost"]) for row in rows] == [("2026-07-01", "USD", "10")]
    code, _, error = focus.run("show", "charges", "--where", "flavour=sweet")
    assert (code, "where: is not a key of charges" in error) == (2, True)
