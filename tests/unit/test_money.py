"""Money is exact, carries its currency, and its parts add up."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput, CurrencyMismatch, UnsplittableCost
from core.money import QUANTUM, Money, money, plain, quantize, split

amounts = st.decimals(min_value=-1_000_000, max_value=1_000_000, places=12)
weights = st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(0, 10**12), min_size=1, max_size=8)


def test_a_million_small_rows_make_the_exact_sum() -> None:
    row = money("0.00048", "USD")
    assert row.times(1_000_000) == money("480.000000", "USD")
    assert money("0.000000075", "USD").times(25) == money("0.000001875", "USD")


def test_euros_and_dollars_are_not_added_without_a_rate() -> None:
    with pytest.raises(CurrencyMismatch, match="EUR"):
        _ = money(5, "USD") + money(10, "EUR")
    assert Money(money(10, "EUR").amount * Decimal("1.10"), "USD") + money(5, "USD") == money("16.00", "USD")


@pytest.mark.parametrize("bad", ["", "1,5", "NaN", "Infinity", "ten"])
def test_what_is_no_amount(bad: str) -> None:
    with pytest.raises(BadInput):
        money(bad, "USD")


@pytest.mark.parametrize("currency", ["", "usd", "US", "EURO", "¥"])
def test_what_is_no_currency(currency: str) -> None:
    with pytest.raises(BadInput, match="currency"):
        money(1, currency)


def test_a_float_is_refused() -> None:
    with pytest.raises(BadInput, match="float"):
        money(0.1, "USD")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text"), [("1E-7", "0.0000001"), ("1.50", "1.5"), ("-0.00", "0"), ("100", "100"), ("1E+3", "1000")]
)
def test_plain_notation(value: str, text: str) -> None:
    assert plain(Decimal(value)) == text


@given(amounts, weights)
def test_shares_add_up_exactly_and_keep_the_sign(whole: Decimal, by: dict[str, int]) -> None:
    if not any(by.values()):
        with pytest.raises(UnsplittableCost):
            split(whole, by)
        return
    shares = split(whole, by)
    assert sum(shares.values()) == whole
    assert all(share * whole >= 0 for share in shares.values())
    assert all(shares[key] == 0 for key, weight in by.items() if weight == 0)


@given(amounts, weights)
def test_order_does_not_matter_and_no_share_is_off_by_more_than_a_quantum(whole: Decimal, by: dict[str, int]) -> None:
    total = sum(by.values())
    if not total:
        return
    shares = split(whole, by)
    assert split(whole, dict(reversed(by.items()))) == shares
    assert all(abs(shares[key] - quantize(whole * weight / total)) <= 2 * QUANTUM for key, weight in by.items())


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(UnsplittableCost, match="negative"):
        split(Decimal(1), {"a": -1, "b": 2})
