"""Exchange rates: which one holds on a day, exact conversion, and sums over several currencies."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.fx import DatedRow, FxBook, FxRate, convert, convert_parts, sums_in
from core.money import money

FRIDAY = date(2026, 7, 31)


def fx(base: str, quote: str, rate: str, day: date = FRIDAY, source: str = "ECB") -> FxRate:
    return FxRate(day, base, quote, Decimal(rate), source)


@pytest.mark.parametrize(
    ("what", "rates", "day", "answer"),
    [
        ("direct", [fx("USD", "EUR", "0.9")], FRIDAY, "9"),
        ("inverse: divided, not multiplied by a rounded inverse", [fx("EUR", "USD", "1.25")], FRIDAY, "8"),
        ("a third stays exact to the quantum", [fx("EUR", "USD", "3")], FRIDAY, "3.333333333333"),
        ("the weekend takes Friday's", [fx("USD", "EUR", "0.9")], FRIDAY + timedelta(days=2), "9"),
        ("seven days old is young enough", [fx("USD", "EUR", "0.9")], FRIDAY + timedelta(days=7), "9"),
        ("eight days old is not", [fx("USD", "EUR", "0.9")], FRIDAY + timedelta(days=8), None),
        ("tomorrow's rate is not today's", [fx("USD", "EUR", "0.9")], FRIDAY - timedelta(days=1), None),
        ("the newer of direct and inverse", [fx("USD", "EUR", "0.9"), fx("EUR", "USD", "1.25", FRIDAY + timedelta(days=1))],
         FRIDAY + timedelta(days=1), "8"),
        ("direct of equally new ones", [fx("EUR", "USD", "1.25"), fx("USD", "EUR", "0.9")], FRIDAY, "9"),
        ("the last given of one day", [fx("USD", "EUR", "0.9"), fx("USD", "EUR", "0.91", source="bank")], FRIDAY, "9.1"),
        ("no third currency unless asked", [fx("EUR", "USD", "1.25"), fx("CNY", "EUR", "0.125")], FRIDAY, "8"),
        ("none at all", [], FRIDAY, None),
    ],
)  # fmt: skip
def test_which_rate_holds(what: str, rates: list[FxRate], day: date, answer: str | None) -> None:
    found = convert(money("10", "USD"), "EUR", day, FxBook(tuple(rates)))
    assert (found.money.amount if found.money else None) == (Decimal(answer) if answer else None), what
    assert bool(found.reason) == (answer is None)


def test_a_third_currency_only_where_it_is_named() -> None:
    rates = (fx("EUR", "USD", "1.25"), fx("EUR", "CNY", "8"))
    apart = convert(money("10", "USD"), "CNY", FRIDAY, FxBook(rates))
    assert (apart.money, apart.reason) == (None, "no rate USD/CNY within 7 days up to 2026-07-31")
    over = convert(money("10", "USD"), "CNY", FRIDAY, FxBook(rates, via="EUR"))
    assert over.money == money("64", "CNY")
    assert str(over.path) == "1 EUR = 1.25 USD on 2026-07-31 (ECB) × 1 EUR = 8 CNY on 2026-07-31 (ECB)"


def test_the_same_currency_needs_no_rate_and_keeps_every_digit() -> None:
    amount = money("0.12345678901234567890", "USD")
    assert convert(amount, "USD", FRIDAY, FxBook()).money == amount


@pytest.mark.parametrize(
    ("field", "rate"),
    [
        ("base", ("usd", "EUR", "1")), ("quote", ("USD", "EURO", "1")), ("quote", ("USD", "USD", "1")),
        ("rate", ("USD", "EUR", "0")), ("rate", ("USD", "EUR", "-1")), ("rate", ("USD", "EUR", "NaN")),
    ],
)  # fmt: skip
def test_a_wrong_rate_is_named(field: str, rate: tuple[str, str, str]) -> None:
    with pytest.raises(BadInput) as caught:
        fx(*rate)
    assert caught.value.field == field


AMOUNTS = st.decimals(min_value=-(10**9), max_value=10**9, places=14, allow_nan=False)
RATES = st.decimals(min_value="0.0001", max_value=10**5, places=8)


@given(st.dictionaries(st.integers(), AMOUNTS, min_size=1, max_size=20), RATES, st.booleans())
def test_parts_add_up_to_their_converted_whole(parts: dict[int, Decimal], rate: Decimal, inverse: bool) -> None:
    book = FxBook((FxRate(FRIDAY, *(("EUR", "USD") if inverse else ("USD", "EUR")), rate, "s"),))
    path = book.path("USD", "EUR", FRIDAY)
    shares = convert_parts(parts, path)
    exact = sum((Fraction(amount) for amount in parts.values()), Fraction(0)) * path.factor
    assert Fraction(sum(map(Fraction, shares.values()))) == Fraction(round(exact * 10**12), 10**12)
    for key, share in shares.items():
        assert abs(Fraction(share) - Fraction(parts[key]) * path.factor) < Fraction(1, 10**12)


def row(group: str, currency: str, amount: str | None, day: date = FRIDAY) -> DatedRow:
    return DatedRow((group,), currency, day, {"cost": None if amount is None else Decimal(amount)})


def test_two_currencies_are_two_sums_until_a_rate_is_there() -> None:
    """Fault E1: 10 USD + 10 CNY is never 20."""
    rows = [row("a", "USD", "10"), row("a", "CNY", "10")]
    apart = sums_in(rows, "USD", FxBook())
    assert [(r.currency, r.amounts["cost"], r.reason) for r in apart.rows] == [
        ("USD", Decimal(10), ""), ("CNY", Decimal(10), "no rate CNY/USD within 7 days up to 2026-07-31"),
    ]  # fmt: skip
    assert apart.missing == (("CNY", "USD", FRIDAY),)
    together = sums_in(rows, "USD", FxBook((fx("USD", "CNY", "8"),)))
    (whole,) = together.rows
    assert (whole.currency, whole.amounts["cost"]) == ("USD", Decimal("11.25"))
    assert whole.original == {"CNY": {"cost": Decimal(10)}, "USD": {"cost": Decimal(10)}}
    assert together.paths == ("1 USD = 8 CNY on 2026-07-31 (ECB)",)


def test_each_day_has_its_own_rate() -> None:
    next_day = FRIDAY + timedelta(days=1)
    book = FxBook((fx("USD", "EUR", "0.5"), fx("USD", "EUR", "0.25", next_day)))
    (found,) = sums_in([row("a", "USD", "4"), row("a", "USD", "4", next_day)], "EUR", book).rows
    assert found.amounts["cost"] == 3


def test_unknown_stays_unknown() -> None:
    (found,) = sums_in([row("a", "USD", None)], "EUR", FxBook((fx("USD", "EUR", "0.5"),))).rows
    assert found.amounts["cost"] is None


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["USD", "CNY"]), AMOUNTS, st.integers(0, 3)), max_size=25),
    RATES,
    RATES,
)
def test_any_grouping_gives_the_same_sum(rows: list[tuple[str, str, Decimal, int]], usd: Decimal, cny: Decimal) -> None:
    book = FxBook((FxRate(FRIDAY, "USD", "EUR", usd, "s"), FxRate(FRIDAY, "EUR", "CNY", cny, "s")))
    dated = [DatedRow((g,), c, FRIDAY + timedelta(days=d), {"cost": a}) for g, c, a, d in rows]
    by_group = sums_in(dated, "EUR", book).rows
    whole = sums_in([DatedRow((), r.currency, r.day, r.amounts) for r in dated], "EUR", book).rows
    assert sum((Fraction(r.amounts["cost"] or 0) for r in by_group), Fraction(0)) == sum(
        (Fraction(r.amounts["cost"] or 0) for r in whole), Fraction(0)
    )
