"""Exchange rates of an import: two of one day, contradictions and jumps are refused by line; the rest is kept."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.fx import FxRate
from core.fx_guard import GivenRate, guard_fx

DAY = date(2026, 7, 15)
Line = tuple[int, str, str, str]


def fx(days: int, base: str, quote: str, rate: str, source: str = "bank") -> FxRate:
    return FxRate(DAY + timedelta(days=days), base, quote, Decimal(rate), source)


def lines(*given_lines: Line) -> list[GivenRate]:
    return [GivenRate(fx(*line), f"fx.csv:{number}") for number, line in enumerate(given_lines, 2)]


EUR_USD = (0, "EUR", "USD", "1.10")
NONE: tuple[Line, ...] = ()


@pytest.mark.parametrize(
    ("what", "known", "new", "refused"),
    [
        ("a first rate", NONE, (EUR_USD,), ()),
        ("the same line twice", NONE, (EUR_USD, EUR_USD), ()),
        ("two rates of one day: both", NONE, (EUR_USD, (0, "EUR", "USD", "1.11")), (2, 3)),
        ("two days", NONE, (EUR_USD, (1, "EUR", "USD", "1.11")), ()),
        ("an inverse within 1 %", NONE, (EUR_USD, (0, "USD", "EUR", "0.905")), ()),
        ("an inverse that contradicts: both", NONE, (EUR_USD, (0, "USD", "EUR", "0.80")), (2, 3)),
        ("against a known inverse", (EUR_USD,), ((0, "USD", "EUR", "0.80"),), (2,)),
        ("both corrected together", ((-1, "EUR", "USD", "1.15"), (0, "EUR", "USD", "1.25"), (0, "USD", "EUR", "0.80")),
         (EUR_USD, (0, "USD", "EUR", "0.909")), ()),
        ("up by a quarter", (EUR_USD,), ((1, "EUR", "USD", "1.375"),), ()),
        ("up by more", (EUR_USD,), ((1, "EUR", "USD", "1.376"),), (2,)),
        ("down by a quarter", (EUR_USD,), ((1, "EUR", "USD", "0.825"),), ()),
        ("a slipped decimal inside a file: it alone", NONE, (EUR_USD, (1, "EUR", "USD", "11"), (2, "EUR", "USD", "1.11")), (3,)),
        ("newest first", NONE, ((2, "EUR", "USD", "1.11"), (1, "EUR", "USD", "11"), EUR_USD), (3,)),
        ("the wrong way round", (EUR_USD,), ((1, "USD", "EUR", "1.10"),), ()),
        ("the wrong way round, further off", ((0, "USD", "CNY", "7.1"),), ((1, "CNY", "USD", "7.1"),), (2,)),
        ("a known later day", ((30, "EUR", "USD", "1.1"),), ((0, "EUR", "USD", "2"),), (2,)),
        ("the nearest of two", ((-9, "EUR", "USD", "9"), (3, "EUR", "USD", "1.2")), (EUR_USD,), ()),
        ("a year and more away", ((-367, "USD", "TRY", "20"),), ((0, "USD", "TRY", "40"),), ()),
        ("a correction towards its neighbours", ((-1, "EUR", "USD", "1.09"), (0, "EUR", "USD", "10.9")), (EUR_USD,), ()),
        ("a correction of the only one", ((0, "EUR", "USD", "11"),), (EUR_USD,), (2,)),
        ("known already with this value", (EUR_USD, (1, "EUR", "USD", "9")), ((1, "EUR", "USD", "9"),), ()),
        ("another pair", (EUR_USD,), ((1, "EUR", "JPY", "170"),), ()),
    ],
)  # fmt: skip
def test_which_lines_are_refused(what: str, known: tuple[Line, ...], new: tuple[Line, ...], refused: tuple[int, ...]) -> None:
    found = guard_fx(lines(*new), [fx(*line) for line in known])
    assert [reason.split(": ")[0] for reason in found.refused] == [f"fx.csv:{line}" for line in refused], what
    assert found.kept == tuple(fx(*line) for number, line in enumerate(new, 2) if number not in refused)


@pytest.mark.parametrize(
    ("known", "new", "said"),
    [
        (NONE, (EUR_USD, (0, "EUR", "USD", "1.2")),
         "fx.csv:2: rate: fx.csv:3 says 1.2 for EUR/USD on the same day (value '1.1'). keep the one that is right."),
        ((EUR_USD,), ((0, "USD", "EUR", "0.8"),),
         "fx.csv:2: rate: 1 USD = 0.8 EUR contradicts 1 EUR = 1.1 USD of that day, known already (bank): multiplied they are "
         "more than 1 % off 1 (value '0.8'). correct the wrong one; give both in one file to replace both."),
        ((EUR_USD,), ((1, "EUR", "USD", "11"),),
         "fx.csv:2: rate: EUR/USD is +900 % against 1.1 on 2026-07-15, the nearest known day (value '11'). check the number and "
         "the direction; --confirm-jump if it is right."),
        ((EUR_USD,), ((1, "USD", "EUR", "11"),),
         "fx.csv:2: rate: USD/EUR is +1110 % against 0.909091 on 2026-07-15, the nearest known day (value '11'). check the "
         "number and the direction; --confirm-jump if it is right."),
    ],
)  # fmt: skip
def test_what_is_said(known: tuple[Line, ...], new: tuple[Line, ...], said: str) -> None:
    assert guard_fx(lines(*new), [fx(*line) for line in known]).refused[0] == said


def test_a_confirmed_jump_is_kept_but_no_contradiction() -> None:
    new = lines((1, "EUR", "USD", "11"), (1, "USD", "EUR", "0.5"), (2, "EUR", "USD", "12"))
    found = guard_fx(new, [fx(*EUR_USD)], jumps_confirmed=True)
    assert (found.kept, len(found.refused)) == ((new[2].rate,), 2)


RATES = st.tuples(st.integers(0, 5), st.sampled_from(["EUR", "USD"]), st.decimals("0.5", "2", places=2).map(str))


@given(st.lists(RATES, max_size=12))
def test_each_line_is_kept_or_refused_and_again_nothing_is_refused_of_what_was_kept(drawn: list[tuple[int, str, str]]) -> None:
    new = lines(*((day, base, "USD" if base == "EUR" else "EUR", rate) for day, base, rate in drawn))
    found = guard_fx(new, [])
    assert len(found.kept) + len(found.refused) == len(new)
    again = [GivenRate(rate, "fx.csv:2") for rate in found.kept]
    assert guard_fx(again, found.kept).refused == ()
