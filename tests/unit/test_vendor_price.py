"""What a price list must be before it prices anything."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from core.errors import BadInput
from core.money import money
from core.tokens import TokenCounts
from core.vendor_price import TokenPrices, check_token_prices, vendor_cost


@pytest.mark.parametrize("bad", [0.1, Decimal("NaN"), Decimal("-1"), "2"])
def test_a_price_is_an_exact_amount(bad: Any) -> None:
    with pytest.raises(BadInput) as caught:
        TokenPrices("USD", Decimal(2), bad)
    assert caught.value.field == "output"


def test_bounds_follow_the_currency() -> None:
    check_token_prices(TokenPrices("JPY", Decimal(15_000), Decimal("0.02")))
    with pytest.raises(BadInput, match="per million tokens"):
        check_token_prices(TokenPrices("USD", Decimal(15_000), Decimal(1)))


def test_nothing_costs_nothing_at_any_price() -> None:
    assert vendor_cost(TokenCounts(), TokenPrices("USD", Decimal(2), Decimal(8))).cost == money("0", "USD")


@pytest.mark.parametrize(
    ("tokens", "prices", "cost"),
    [
        (TokenCounts.from_inclusive(262_960, 1_744, cache_read=257_955), ("1.25", "10", "0.625"), "0.184918125"),
        (TokenCounts.from_inclusive(36_100, 1_200, cache_read=21_600), ("0.435", "0.87", "0.003625"), "0.0074298"),
    ],
)
def test_cached_tokens_are_sold_once(tokens: TokenCounts, prices: tuple[str, str, str], cost: str) -> None:
    """faults-billing H4 and H4b."""
    assert vendor_cost(tokens, TokenPrices("USD", *map(Decimal, prices))).cost == money(cost, "USD")


def test_a_bucket_without_a_price_makes_the_cost_unknown() -> None:
    found = vendor_cost(TokenCounts(10, 5), TokenPrices("USD", Decimal(1), Decimal(1)))
    assert (found.cost, found.reason) == (None, "5 tokens of cache_read and no price for them")
