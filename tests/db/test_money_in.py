"""Charges and ledger lines in one currency, by the commands a person types."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from bill_lines import cur_line, write_cur
from cli_command import Command
from sqlalchemy import Engine

from bench.year import coarser
from core.capacity import NodeService
from core.money import money
from core.rates import Rate
from core.usage import Deployment
from models.rates_repo import add_rates, declare_service

pytestmark = pytest.mark.db
FX = "day,base,quote,rate,source\n2026-07-01,USD,CNY,8,bank\n2026-07-20,USD,CNY,5,bank\n"


@pytest.fixture
def bills(command: Command, tmp_path: Path) -> None:
    """10 USD and 10 CNY of the same days, and 1 CNY of a day without a rate."""
    lines = {
        "usd": [cur_line("Usage", {"unblended": "10"}, start="2026-07-02T00:00:00Z")],
        "cny": [
            cur_line("Usage", {"unblended": "8"}, currency="CNY", account="2", start="2026-07-02T00:00:00Z"),
            cur_line("Tax", {"unblended": "2"}, currency="CNY", account="2", start="2026-07-21T00:00:00Z"),
            cur_line("Usage", {"unblended": "1"}, currency="CNY", account="2", start="2026-07-30T00:00:00Z"),
        ],
    }
    for name, rows in lines.items():
        code, _, error = command("ingest", "bill", str(write_cur(tmp_path / f"{name}.csv", rows)), "--format", "aws-cur")
        assert code == 0, error


@pytest.fixture
def rates(command: Command, tmp_path: Path) -> Path:
    path = tmp_path / "fx.csv"
    path.write_text(FX)
    assert command("rates", "import", str(path), "--format", "fx", "--confirm-jump")[1]["new"] == 2
    return path


def test_two_currencies_are_never_one_number_without_a_rate(command: Command, bills: None) -> None:
    _, rows, _ = command("show", "charges", "--by", "source")
    assert [(row["currency"], row["billed_cost"]) for row in rows] == [("CNY", "11"), ("USD", "10")]
    code, said, _ = command("show", "charges", "--by", "source", "--in", "usd")
    assert code == 0
    assert [(row["currency"], row["billed_cost"]) for row in said["rows"]] == [("CNY", "11"), ("USD", "10")]
    assert said["missing"][0] == {"base": "CNY", "quote": "USD", "day": "2026-07-02"}
    assert said["rows"][0]["reason"].startswith("no rate CNY/USD within 7 days up to 2026-07-02")


def test_each_day_at_its_rate_and_the_rest_apart(command: Command, bills: None, rates: Path) -> None:
    """8 CNY at 8 are 1 USD, 2 CNY at 5 are 0.4; the 30th has no rate younger than a week."""
    _, said, _ = command("show", "charges", "--by", "source", "--in", "USD")
    assert [(row["currency"], row["billed_cost"], row["rows"]) for row in said["rows"]] == [("USD", "11.4", 3), ("CNY", "1", 1)]
    original = {one["currency"]: one["billed_cost"] for one in said["rows"][0]["original"]}
    assert original == {"CNY": "10", "USD": "10"}
    assert said["missing"] == [{"base": "CNY", "quote": "USD", "day": "2026-07-30"}]
    assert said["rates"] == ["1 USD = 8 CNY on 2026-07-01 (bank)", "1 USD = 5 CNY on 2026-07-20 (bank)"]


def test_taxes_are_a_bucket_of_their_own_in_any_currency(command: Command, bills: None, rates: Path) -> None:
    _, said, _ = command("show", "charges", "--by", "bucket", "--in", "USD", "--to", "2026-07-25")
    assert {row["bucket"]: row["billed_cost"] for row in said["rows"]} == {"gpu": "11", "tax": "0.4"}


def test_people_are_told_the_rates_and_what_has_none(command: Command, bills: None, rates: Path) -> None:
    code, out, error = command("show", "charges", "--by", "source", "--in", "USD", as_json=False)
    assert (code, "11.4" in out, "10 CNY" in out) == (0, True, True)
    assert "1 USD = 8 CNY on 2026-07-01 (bank)" in error
    assert "Not converted for want of a rate, first CNY/USD on 2026-07-30" in error


def test_the_same_rates_again_change_nothing_and_a_corrected_one_is_shown(command: Command, rates: Path) -> None:
    _, again, _ = command("rates", "import", str(rates), "--format", "fx")
    assert (again["new"], again["changed"], again["unchanged"]) == (0, 0, 2)
    rates.write_text(FX.replace("CNY,5,", "CNY,4,"))
    _, dry, _ = command("rates", "import", str(rates), "--format", "fx", "--dry-run", "--confirm-jump")
    assert dry["changes"] == [
        {"day": "2026-07-20", "base": "USD", "quote": "CNY", "was": "5", "now": "4", "source": "bank"}
    ]  # fmt: skip
    _, listed, _ = command("rates", "fx", "list", "--pair", "CNY/USD", "--from", "2026-07-01")
    assert [row["rate"] for row in listed] == ["5", "8"]
    command("rates", "import", str(rates), "--format", "fx", "--confirm-jump")
    _, listed, _ = command("rates", "fx", "list", "--pair", "USD/CNY", "--from", "2026-07-01")
    assert [row["rate"] for row in listed] == ["4", "8"]


@pytest.mark.parametrize("words", [("show", "charges", "--in", "dollars"), ("rates", "import", "no.csv", "--format", "fx")])
def test_a_wrong_word_is_named(command: Command, words: tuple[str, ...]) -> None:
    code, _, error = command(*words)
    assert (code, "is no currency" in error or "cannot be read" in error) == (2, True)


def test_ledger_lines_in_another_currency(command: Command, db: Engine, rates: Path) -> None:
    start, end = datetime(2026, 7, 2, tzinfo=UTC), datetime(2026, 7, 2, 1, tzinfo=UTC)
    with db.begin() as connection:
        add_rates(connection, [Rate("gpu_hour", "A10G", money("3", "USD"), "list", "card", start)], start)
        declare_service(connection, NodeService(Deployment("c", "n", "m"), "t", "n1", "A10G", 1, start, end), "test")
        coarser(connection, "engine")
    assert command("ledger", "close")[0] == 0
    code, said, _ = command("ledger", "show", "--from", "2026-07-02", "--to", "2026-07-03", "--in", "CNY")
    assert (code, said["totals"][0]["difference"]) == (0, "0")
    (row,) = said["in"]["rows"]
    assert (row["currency"], Decimal(row["cost"]), row["original"][0]["cost"]) == ("CNY", 24, "3")
