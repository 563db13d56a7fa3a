"""``tokenfuse rates import --format aws-price-list``: what is new, what changed, what is refused, and nothing under --dry-run."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from cli_command import Command
from price_list_files import july_2025, price, write_csv
from sqlalchemy import Engine

from core.rates import rate_at
from models.rates_repo import read_rates

pytestmark = pytest.mark.db


@pytest.fixture
def command(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Without the prices that ship."""
    settings = tmp_path / "tokenfuse.toml"
    settings.write_text("default_rates = false\n")
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(settings))
    return command


def take(command: Command, path: Path, *more: str) -> Any:
    code, said, error = command("rates", "import", str(path), "--format", "aws-price-list", *more)
    assert code == (2 if said["refused"] else 0), error
    return said


def test_a_version_its_repetition_and_the_next(command: Command, tmp_path: Path) -> None:
    july = write_csv(tmp_path / "july.csv.gz", july_2025())
    dry = take(command, july, "--dry-run")
    assert (dry["new"], dry["dry_run"], command("rates", "list")[1]) == (12, True, [])
    first = take(command, july)
    assert (first["new"], first["changed"], first["versions"]) == (12, 0, ["20250703204906"])
    again = take(command, july)
    assert (again["new"], again["changed"], again["unchanged"]) == (0, 0, 12)
    rows = [row for row in july_2025() if row["Instance Type"] != "g5.xlarge"]
    later = [*rows, price("g5.xlarge", "1.1060000000", "AAAA000000000008"), price("g6.xlarge", "0", "AAAA000000000099")]
    next_one = take(command, write_csv(tmp_path / "august.csv", later, "20250801000000"))
    assert {(row["sku"], row["was"], row["price"]) for row in next_one["changes"]} == {
        (sku, "1.006", "1.106") for sku in ("A10G", "A10G-24GB", "A10G@g5.xlarge", "A10G-24GB@g5.xlarge")
    }
    assert (next_one["unchanged"], next_one["refused"]) == (8, 1)
    assert "g6.xlarge: a price of 0 is no price" in next_one["reasons"][0]
    _, listed, _ = command("rates", "list")
    assert len(listed) == 16


@pytest.mark.parametrize("order", list(permutations(("07", "08", "09"))), ids="-".join)
def test_versions_may_come_in_any_order(command: Command, db: Engine, tmp_path: Path, order: tuple[str, ...]) -> None:
    """August alone is dearer; September says again what July said, and stores nothing where July is known."""
    for month in order:
        amount = "1.1060000000" if month == "08" else "1.0060000000"
        rows = [price("g5.xlarge", amount, "AAAA000000000008")]
        take(command, write_csv(tmp_path / f"{month}.csv", rows, f"2025{month}01000000"))
    with db.connect() as connection:
        known = read_rates(connection)
    for month, amount in ((7, "1.006"), (8, "1.106"), (9, "1.006"), (12, "1.006")):
        found = rate_at(known, "gpu_hour", "A10G@g5.xlarge", datetime(2025, month, 15, tzinfo=UTC), "list").rate
        assert found is not None
        assert found.price.amount == Decimal(amount), month


def test_another_regions_version_ends_nothing(command: Command, db: Engine, tmp_path: Path) -> None:
    abroad = price("g5.xlarge", "1.2570000000", "BBBB", **{"Region Code": "eu-west-1", "Location": "EU (Ireland)"})
    take(command, write_csv(tmp_path / "eu.csv", [abroad], "20250901000000"))
    take(command, write_csv(tmp_path / "us.csv", [price("g5.xlarge", "1.0060000000", "AAAA")], "20250801000000"))
    with db.connect() as connection:
        assert {rate.valid_to for rate in read_rates(connection)} == {None}


def test_people_read_it(command: Command, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "july.csv", july_2025())
    code, out, error = command("rates", "import", str(path), "--format", "aws-price-list", "--dry-run", as_json=False)
    assert code == 0
    assert "New prices of a GPU-hour" in out
    assert "2.74470525" in out
    assert "12 new, 0 changed, 0 unchanged, 0 refused of version 20250703204906. Nothing was kept (dry run)." in error


@pytest.mark.parametrize(
    ("form", "said"),
    [("aws-price-list", "is no AWS price list"), ("card", "rate card must be a mapping"), ("fx", "is missing")],
)
def test_a_file_of_another_form(command: Command, tmp_path: Path, form: str, said: str) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear all\n")
    code, _, error = command("rates", "import", str(path), "--format", form)
    assert code == 2
    assert said in error
    assert "letter.txt" in error


CARD = """version: 1
label: rack 7
charge_basis: contracted
source: supply contract
currency: EUR
rates:
  - {kind: kwh, sku: rack-7, price: "0.24", valid_from: 2026-01-01}
  - {kind: kwh, sku: rack-7, price: "0.17", valid_from: 2026-01-01, band: "mon-fri 22:00-06:00 Europe/Berlin"}
  - {kind: pue, sku: rack-7, price: "1.28", valid_from: 2026-01-01}
"""


def test_a_tariff_with_hours_and_a_pue_come_back_as_they_were_given(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text(CARD)
    assert command("rates", "import", str(path), "--dry-run")[1] == {"label": "rack 7", "rates": 3, "new": 3, "dry_run": True}
    command("rates", "import", str(path))
    assert command("rates", "import", str(path))[1]["new"] == 0
    _, listed, _ = command("rates", "list")
    assert [(row["kind"], row["price"], row["currency"], row["band"]) for row in listed] == [
        ("kwh", "0.24", "EUR", ""), ("kwh", "0.17", "EUR", "mon,tue,wed,thu,fri 22:00-06:00 Europe/Berlin"),
        ("pue", "1.28", "XXX", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mon-fri", "mo-fr", "rack.yaml:8: band: names a day that is none"),
        ("22:00-06:00", "22:10-06:00", "rack.yaml:8: band: times must be quarter hours"),
        ("Europe/Berlin", "Mars/Base", "unknown time zone"),
        ('price: "1.28"', 'price: "0.9"', "rack.yaml:9: price: pue of rack-7 is outside 1..4"),
        ("kind: kwh, sku: rack-7, price: \"0.17\"", "kind: gpu_hour, sku: rack-7, price: \"0.17\"", "band: only a kwh has one"),
    ],
)  # fmt: skip
def test_a_wrong_tariff_is_named(command: Command, tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "rack.yaml"
    assert old in CARD
    path.write_text(CARD.replace(old, new))
    code, _, error = command("rates", "import", str(path))
    assert code == 2
    assert said in error
