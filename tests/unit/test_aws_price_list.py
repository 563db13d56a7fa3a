"""AWS price lists: which rows are a GPU's price, what is refused, and the dates between which a price held."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from price_list_files import COLUMNS, july_2025, price, write_csv, write_json

from core.errors import BadInput
from core.money import money
from core.price_list import chain, compare, sheet_rates
from core.rates import Rate, rate_at
from ingest.prices.aws_price_list import machines, read_price_list

JULY = datetime(2025, 7, 3, 20, 49, 6, tzinfo=UTC)
WRITERS = {"csv": (write_csv, "index.csv"), "csv.gz": (write_csv, "index.csv.gz"), "json": (write_json, "index.json"),
           "json.gz": (write_json, "index.json.gz")}  # fmt: skip


def rates_of(path: Path, region: str = "") -> tuple[dict[str, Rate], list[str]]:
    rates: dict[str, Rate] = {}
    refused: list[str] = []
    for sheet in chain(read_price_list(path, region)):
        found = sheet_rates(sheet, machines(sheet.prices))
        rates |= {rate.sku: rate for rate in found.rates}
        refused += found.refused
    return rates, refused


@pytest.mark.parametrize("form", WRITERS)
def test_on_demand_linux_prices_and_nothing_else(tmp_path: Path, form: str) -> None:
    write, name = WRITERS[form]
    rates, refused = rates_of(write(tmp_path / name, july_2025()))
    assert refused == []
    assert {sku: rate.price.amount for sku, rate in rates.items()} == {
        "H100-80GB@p5.48xlarge": Decimal("6.88"), "H100@p5.48xlarge": Decimal("6.88"), "H100-80GB": Decimal("6.88"),
        "H100": Decimal("6.88"), "A100-40GB@p4d.24xlarge": Decimal("2.74470525"), "A100-40GB": Decimal("2.74470525"),
        "A10G@g5.xlarge": Decimal("1.006"), "A10G-24GB@g5.xlarge": Decimal("1.006"), "A10G": Decimal("1.006"),
        "A10G-24GB": Decimal("1.006"), "A10G@g5.12xlarge": Decimal("1.418"), "A10G-24GB@g5.12xlarge": Decimal("1.418"),
    }  # fmt: skip
    rate = rates["A100-40GB"]
    assert (rate.kind, rate.charge_basis, rate.valid_from, rate.valid_to) == ("gpu_hour", "list", JULY, None)
    assert "AWS Price List AmazonEC2 20250703204906, us-east-1 p4d.24xlarge on demand (21.957642 USD / 8 GPUs)" in rate.source


@pytest.mark.parametrize("form", WRITERS)
def test_prices_in_yuan(tmp_path: Path, form: str) -> None:
    write, name = WRITERS[form]
    row = price("g5.xlarge", "10.3070000000", "C", Currency="CNY", **{"Region Code": "cn-northwest-1"})
    rates, _ = rates_of(write(tmp_path / name, [row]))
    assert rates["A10G"].price == money("10.307", "CNY")


@pytest.mark.parametrize(
    ("what", "rows", "said"),
    [
        ("a price of 0", [price("g5.xlarge", "0.0000000000", "S1")], "index.csv SKU S1: g5.xlarge: a price of 0 is no price"),
        (
            "two prices",
            [price("g5.xlarge", "1.006", "S1"), price("g5.xlarge", "1.106", "S2")],
            "has 2 prices (1.006 USD and 1.106",
        ),
        ("per month, not per hour", [price("g5.xlarge", "734.38", "S1")], "gpu_hour of A10G is outside 0.02..100 USD"),
        ("no number", [price("g5.xlarge", "free", "S1")], "g5.xlarge: 'free' is no price"),
        ("GPUs not known", [price("p9x.48xlarge", "99", "S1")], "p9x.48xlarge: how many GPUs it has is not known"),
    ],
)
def test_what_is_no_price_is_refused_and_named(tmp_path: Path, what: str, rows: list[dict[str, str]], said: str) -> None:
    rates, refused = rates_of(write_csv(tmp_path / "index.csv", [price("p5.48xlarge", "55.04", "OK"), *rows]))
    assert "H100" in rates, what
    assert len(refused) == 1
    assert said in refused[0]


def test_a_capacity_block_beside_the_price_does_not_hide_it(tmp_path: Path) -> None:
    """Lists without the column MarketOption: the row at 0 is refused, the price stays."""
    rows = [price("p5.48xlarge", "0.0000000000", "S0"), price("p5.48xlarge", "55.04", "S1")]
    path = write_csv(tmp_path / "index.csv", rows, columns=[name for name in COLUMNS if name != "MarketOption"])
    rates, refused = rates_of(path)
    assert (rates["H100"].price.amount, len(refused)) == (Decimal("6.88"), 1)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_list_of_several_regions_needs_one_named(tmp_path: Path, form: str) -> None:
    write, name = WRITERS[form]
    rows = [price("g5.xlarge", "1.006", "S1"), price("g5.xlarge", "1.13", "S2", **{"Region Code": "eu-central-1"})]
    path = write(tmp_path / name, rows)
    with pytest.raises(BadInput, match="the list holds 2 regions"):
        read_price_list(path)
    assert rates_of(path, "eu-central-1")[0]["A10G"].price.amount == Decimal("1.13")
    with pytest.raises(BadInput, match="no such region"):
        read_price_list(path, "mars-1")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"sku,price\na,1\n", "FormatVersion: is no AWS price list"), (b"", "is no AWS price list"),
        (b"{}", "offerCode: is no AWS price list"), (b'{"offerCode": "AmazonEC2", "prod', "cut short"),
        (b"\x1f\x8b\x08", "cannot be read"),
        (b'{"products": [1]}', "expected '{'"), (b"\xff\xfe\x00", "is not UTF-8"),
    ],
)  # fmt: skip
def test_another_file_is_refused(tmp_path: Path, body: bytes, said: str) -> None:
    path = tmp_path / "index.csv"
    path.write_bytes(body)
    with pytest.raises(BadInput) as caught:
        read_price_list(path)
    assert said in str(caught.value)
    assert "index.csv" in str(caught.value)


@pytest.mark.parametrize("form", ["csv.gz", "json", "json.gz"])
def test_a_file_cut_short_is_refused(tmp_path: Path, form: str) -> None:
    write, name = WRITERS[form]
    path = write(tmp_path / name, july_2025())
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadInput, match=r"cut short|cannot be read"):
        read_price_list(path)


def test_versions_follow_each_other(tmp_path: Path) -> None:
    paths = [
        write_csv(tmp_path / "b.csv", [price("p5.48xlarge", "55.04", "S1")], "20250703204906"),
        write_csv(tmp_path / "a.csv", [price("p5.48xlarge", "98.32", "S1")], "20240205184227"),
    ]
    sheets = chain(sheet for path in paths for sheet in read_price_list(path))
    rates = [rate for sheet in sheets for rate in sheet_rates(sheet, machines(sheet.prices)).rates if rate.sku == "H100"]
    assert [(rate.price.amount, rate.valid_from.year, rate.valid_to) for rate in rates] == [
        (Decimal("12.29"), 2024, JULY), (Decimal("6.88"), 2025, None),
    ]  # fmt: skip


def test_what_an_import_changes() -> None:
    def gpu(price: str, year: int, until: int | None = None) -> Rate:
        ends = datetime(until, 1, 1, tzinfo=UTC) if until else None
        return Rate("gpu_hour", "A10G", money(price, "USD"), "list", f"list {year}", datetime(year, 1, 1, tzinfo=UTC), ends)

    assert compare([gpu("1", 2025)], []).new == (gpu("1", 2025),)
    assert compare([gpu("1", 2026)], [gpu("1", 2025)]).unchanged == (gpu("1", 2026),)
    assert compare([gpu("2", 2026)], [gpu("1", 2025)]).changed == ((gpu("1", 2025), gpu("2", 2026)),)
    ending = compare([gpu("1", 2026)], [gpu("1", 2025, until=2027)])
    assert ending.to_add == (gpu("1", 2026),)  # the former ends, so the new one is needed
    back = compare([gpu("2", 2026), gpu("1", 2027)], [gpu("1", 2025)])
    assert len(back.changed) == 2


@pytest.mark.realdata
def test_the_public_history(realdata: Path) -> None:
    """A constant in code is wrong by 33 to 44 % a year later: each date has its own price."""
    path = realdata / "billing" / "prices" / "aws_gpu_ondemand_us-east-1_history.tsv"
    found = [sheet_rates(sheet, machines(sheet.prices)) for sheet in chain(read_price_list(path, "us-east-1"))]
    rates = [rate for one in found for rate in one.rates]
    refused = [reason for one in found for reason in one.refused]

    def at(sku: str, year: int, month: int) -> Decimal | None:
        rate = rate_at(rates, "gpu_hour", sku, datetime(year, month, 1, tzinfo=UTC), "list").rate
        return rate.price.amount if rate else None

    p5, p4d = "H100@p5.48xlarge", "A100-40GB@p4d.24xlarge"
    assert (at(p5, 2025, 1), at(p5, 2025, 6), at(p5, 2026, 9)) == (Decimal("12.29"), None, Decimal("6.88"))
    assert (at(p4d, 2025, 1), at(p4d, 2025, 8), at(p4d, 2026, 9)) == (
        Decimal("4.096575"), Decimal("2.74470525"), Decimal("2.74470525"),
    )  # fmt: skip
    assert (at("H200@p5en.48xlarge", 2026, 9), at("L40S", 2026, 9)) == (Decimal("7.912"), None)
    assert sum("names no version" in reason for reason in refused) == 12
