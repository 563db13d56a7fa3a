"""Files of exchange rates: the forms that are read, and how each fault is named."""

from __future__ import annotations

import zipfile
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from core.errors import BadInput
from ingest.prices.fx_files import ECB, read_fx_file

TODAY = date(2026, 8, 1)
OWN = "day,base,quote,rate,source\n2026-07-31,USD,CNY,7.1823,PBoC fixing\n"
HIST = "Date,USD,JPY,BGN,CYP,\n2026-07-31,1.1234,170.55,N/A,N/A,\n2026-07-30,1.1200,170.00,N/A,N/A,\n"


def write(folder: Path, text: str, name: str = "fx.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_our_own_form(tmp_path: Path) -> None:
    found = read_fx_file(write(tmp_path, OWN), "fx", TODAY)
    (rate,) = found.rates
    assert (rate.day, rate.base, rate.quote, rate.rate, rate.source) == (
        date(2026, 7, 31), "USD", "CNY", Decimal("7.1823"), "PBoC fixing",
    )  # fmt: skip
    assert found.refused == ()


@pytest.mark.parametrize("form", ["plain", "packed", "byte order mark"])
def test_the_ecb_history_with_currencies_that_are_gone(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, HIST if form != "byte order mark" else "\ufeff" + HIST, "eurofxref-hist.csv")
    if form == "packed":
        with zipfile.ZipFile(tmp_path / "eurofxref-hist.zip", "w") as packed:
            packed.write(path, path.name)
        path = tmp_path / "eurofxref-hist.zip"
    found = read_fx_file(path, "ecb", TODAY)
    assert [(r.day.day, r.quote, str(r.rate)) for r in found.rates] == [
        (31, "USD", "1.1234"), (31, "JPY", "170.55"), (30, "USD", "1.1200"), (30, "JPY", "170.00"),
    ]  # fmt: skip
    assert {(r.base, r.source) for r in found.rates} == {("EUR", ECB)}


def test_the_ecb_sheet_of_one_day(tmp_path: Path) -> None:
    found = read_fx_file(write(tmp_path, "Date, USD, JPY, \n31 July 2026, 1.1234, 170.55, \n"), "ecb", TODAY)
    assert [(r.day, r.quote) for r in found.rates] == [(date(2026, 7, 31), "USD"), (date(2026, 7, 31), "JPY")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("2026-07-31,USD,CNY,0,s", "fx.csv:3: rate: must be a positive number"),
        ("2026-07-31,USD,CNY,seven,s", "fx.csv:3: rate: is no number"),
        ("31.07.2026,USD,CNY,7,s", "fx.csv:3: day: is no day"),
        ("2026-08-02,USD,CNY,7,s", "fx.csv:3: day: is in the future"),
        ("2026-07-31,USD,RMBY,7,s", "fx.csv:3: quote: currency must be"),
        ("2026-07-31,USD,CNY,7", "fx.csv:3: has 4 cells"),
        ("2026-07-31,USD,CNY,7,", "fx.csv:3: source: must say"),
    ],
)
def test_a_wrong_line_is_refused_and_the_others_are_taken(tmp_path: Path, line: str, said: str) -> None:
    found = read_fx_file(write(tmp_path, OWN + line + "\n"), "fx", TODAY)
    assert len(found.rates) == 1
    assert len(found.refused) == 1
    assert said in found.refused[0]


@pytest.mark.parametrize(("form", "text"), [("fx", HIST), ("ecb", OWN), ("fx", ""), ("ecb", "")])
def test_a_file_of_another_form_is_refused(tmp_path: Path, form: str, text: str) -> None:
    with pytest.raises(BadInput, match=r"fx\.csv:1"):
        read_fx_file(write(tmp_path, text), form, TODAY)
