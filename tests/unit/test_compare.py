"""Own engines beside vendors: the same tokens, the price of their time, and from what use on own is cheaper."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.compare import BoughtMix, Measured, OwnUse, TokenMix, bought_mix, compare, hardware_cost, verdict
from core.money import Money, money
from core.vendor_book import PriceBook
from core.vendor_list import ModelSheet, PriceEntry, Rule
from core.vendor_price import TokenPrices

START = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 7, 1, tzinfo=UTC)
WATCHED = "share of time with running > 0"


def sheet(input_: str, cached: str | None, output: str, since: datetime = START) -> ModelSheet:
    prices = TokenPrices("USD", Decimal(input_), Decimal(output), Decimal(cached) if cached else None)
    return ModelSheet("genai-prices", "acme", "m", (Rule("exact", "m"),), (PriceEntry(prices),), since, "list")


def own(
    allocation: str = "10", usage: str = "4", mix: TokenMix | None = None, source: str = WATCHED, currency: str = "USD"
) -> OwnUse:
    return OwnUse(currency, Decimal(allocation), Decimal(usage), mix or TokenMix(600_000, 300_000, 100_000), source)


def bought(amount: str, currency: str = "USD") -> BoughtMix:
    return BoughtMix(money(amount, currency), ("list",))


def test_each_part_at_the_price_then_in_force() -> None:
    book = PriceBook((sheet("2", "0.5", "8"), sheet("4", "1", "16", LATER)))
    million = TokenMix(1_000_000, 1_000_000, 1_000_000)
    found = bought_mix([(START, million), (LATER - timedelta(minutes=15), million), (LATER, million)], book, "acme", "m")
    assert found.cost == money("42.0", "USD")
    assert bought_mix([], book, "acme", "m").reason == "no tokens in the period"


def test_a_kind_of_token_without_a_price_makes_the_comparison_unknown() -> None:
    found = bought_mix([(START, TokenMix(1, 1, 1))], PriceBook((sheet("2", None, "8"),)), "acme", "m")
    assert (found.cost, found.reason) == (None, "list acme/m has no price of cache_read")
    assert compare(own(), found).reasons["break_even"] == found.reason
    assert (
        "no price list names acme/other"
        in bought_mix([(START, TokenMix(1))], PriceBook((sheet("2", "1", "8"),)), "acme", "other").reason
    )


def test_the_figures_are_of_the_same_mix_and_divided_last() -> None:
    found = compare(own(), bought("5"))
    assert (found.own_allocation, found.own_usage, found.bought) == (10, 4, 5)
    assert (found.times, found.utilisation, found.break_even, found.reasons) == (2, Decimal("0.4"), Decimal("0.8"), {})
    assert verdict(found) == "bought is cheaper at this use"


@pytest.mark.parametrize(
    ("use", "price", "said"),
    [
        (own(), "3.9", "never at this price"),
        (own(), "10", "own is cheaper"),
        (own("4", "4"), "4", "own is cheaper"),
        (own(source="minutes with gateway tokens (no engine observation)"), "10", "unknown"),
        (own(source=""), "10", "unknown"),
        (own(currency="CNY"), "10", "unknown"),
    ],
)
def test_what_is_said_of_it(use: OwnUse, price: str, said: str) -> None:
    assert verdict(compare(use, bought(price))) == said


def test_unknown_has_its_reason() -> None:
    found = compare(own(currency="CNY"), bought("10"))
    assert (found.times, found.bought) == (None, 10)
    assert found.reasons["times"] == "own cost is in CNY, the list in USD: no exchange rate is assumed"
    nothing = compare(OwnUse("USD", Decimal(1), Decimal(0), TokenMix(), WATCHED), BoughtMix(None, (), "no tokens in the period"))
    assert (nothing.own_allocation, nothing.own_usage, nothing.break_even) == (None, None, None)
    assert set(nothing.reasons) >= {"own_allocation", "own_usage", "bought", "times", "break_even"}


@given(st.integers(1, 10**9), st.integers(1, 100), st.integers(1, 10**9))
def test_at_the_break_even_use_both_cost_the_same(capacity: int, percent: int, price: int) -> None:
    """With busy time in proportion to tokens, the capacity's cost over the tokens done at that use is the vendor's price."""
    whole, used, vendor = Decimal(capacity), Decimal(capacity) * percent / 100, Decimal(price)
    found = compare(own(str(whole), str(used)), BoughtMix(Money(vendor, "USD")))
    assert found.break_even is not None
    exact = used / vendor
    assert abs(found.break_even - exact) <= Decimal("0.00005")
    assert abs(whole - vendor * exact * 100 / percent) <= Decimal("1e-12") * whole


def test_hardware_has_numbers_only_where_it_was_measured() -> None:
    hour_us = 3_600_000_000
    found = hardware_cost(Measured("m", "A10G", 3_600_000, 360_000, hour_us, 4 * hour_us), Decimal("1.006"))
    assert (found.tokens_per_gpu_s, found.output_per_gpu_s, found.utilisation) == (1000, 100, Decimal("0.25"))
    assert found.per_mtok_full == Decimal("0.279444444444")
    assert found.per_mtok_at_use == Decimal("1.117777777778")
    assert hardware_cost(None, Decimal(1)).reason == "not measured here"
    assert hardware_cost(Measured("m", "L4", 0, 0, 0, 5), Decimal(1)).per_mtok_full is None
