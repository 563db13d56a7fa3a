"""What a bill may not say: each fault stops the delivery and is named by file, row, column and value."""

from __future__ import annotations

import re

import pytest
from bill_lines import csv_bytes
from focus_command import FocusCommand, focus, focus_line

pytestmark = pytest.mark.db
__all__ = ["focus"]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"ChargePeriodStart": "31/07/2026"}, r"row 2: ChargePeriodStart: is no date that can be read .*'31/07/2026'"),
        ({"ChargePeriodEnd": "soon"}, r"row 2: ChargePeriodEnd: is no date that can be read .*'soon'"),
        ({"BillingPeriodStart": "July"}, r"row 2: BillingPeriodStart: is no date that can be read .*'July'"),
        ({"BillingCurrency": "XYZ1"}, r"row 2: currency: is not a currency of ISO 4217 .*'XYZ1'"),
        ({"BillingCurrency": "CREDITS"}, r"row 2: currency: is not a currency of ISO 4217 .*'CREDITS'"),
        ({"ChargePeriodEnd": "2026-07-02T00:00:00Z"}, r"row 2: charge_end: a charge ends before it starts .*2026-07-02"),
    ],
)
def test_a_line_that_says_the_impossible(focus: FocusCommand, cells: dict[str, str], said: str) -> None:
    reason = focus.refusal([focus_line(), focus_line(**cells)])
    assert re.search(said, reason), reason
    assert "focus.csv" in reason
    assert focus.charged() == 0


def test_currencies_are_read_in_any_case_and_the_pricing_currency_is_free(focus: FocusCommand) -> None:
    rows = [focus_line(PricingCurrency="Credits"), focus_line(BillingCurrency="usd")]
    assert focus.notes(rows) == []
    _, found, _ = focus.run("show", "charges", "--by", "source")
    assert [(row["currency"], row["billed_cost"]) for row in found] == [("USD", "20")]


def test_a_given_currency_that_lines_contradict_changes_none_and_is_told(focus: FocusCommand) -> None:
    rows = [focus_line(), focus_line(BillingCurrency="")]
    assert focus.notes(rows, "--currency", "eur") == [
        "--currency EUR is for lines that name none: 1 charges name USD and stay in it"
    ]
    _, found, _ = focus.run("show", "charges", "--by", "source")
    assert [(row["currency"], row["billed_cost"]) for row in found] == [("EUR", "10"), ("USD", "10")]


def test_a_cost_column_that_is_there_twice(focus: FocusCommand) -> None:
    head, line = csv_bytes([focus_line()]).decode().split("\r\n")[:2]
    body = f"{head},BilledCost\r\n{line},99\r\n".encode()
    code, said, _ = focus.take_bytes(body)
    assert code == 2
    assert "BilledCost: the header names this cost column twice" in said["refused"][0]["reason"]


def test_a_period_that_has_not_begun(focus: FocusCommand) -> None:
    ahead = {name: f"2126-{day}T00:00:00Z" for name, day in (("BillingPeriodStart", "07-01"), ("ChargePeriodStart", "07-03"))}
    rows = [focus_line(**ahead, ChargePeriodEnd="")]
    assert "billing period 2126-07 has not begun" in focus.refusal(rows)
    assert focus.notes(rows, "--accept", "future") == []


def test_a_category_that_nobody_knows_is_told_with_its_money(focus: FocusCommand) -> None:
    rows = [focus_line(), focus_line(ChargeCategory="Gift"), focus_line(ChargeCategory="")]
    assert focus.notes(rows) == [
        "2 charges of USD 20 billed are of no known kind ('', 'Gift'): bucket unknown, in the total and in no other bucket"
    ]


@pytest.mark.parametrize(("word", "encoding", "named"), [("Müller", "latin-1", "WINDOWS-1252"), ("云服务器", "gbk", "GB18030")])
def test_another_encoding_is_named(focus: FocusCommand, word: str, encoding: str, named: str) -> None:
    text = csv_bytes([focus_line(), focus_line(ServiceName=word)]).decode()
    code, said, _ = focus.take_bytes(text.encode(encoding))
    reason = said["refused"][0]["reason"]
    assert code == 2
    assert "focus.csv: is not written in UTF-8: line 3 has the byte" in reason
    assert f"it looks like {named}" in reason
    assert "deliver it again" not in reason
