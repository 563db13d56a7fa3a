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
