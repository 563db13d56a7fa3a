"""What bought tokens cost at a price list: exact Decimal, per bucket; a bucket without a price makes the cost unknown."""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal, localcontext

from core.errors import BadInput
from core.money import CONTEXT, Money, plain, total
from core.rates import UNITS_PER_USD
from core.tokens import TokenCounts, TokenSums

PER_TOKENS = 6
"""Prices are per 10^6 tokens."""
BOUNDS_USD_PER_MILLION = (Decimal("0.0001"), Decimal(1000))
"""A price outside these is most likely held in another unit (per token, per 1k, in cents) and is refused unless confirmed."""


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Prices per million tokens of each disjoint bucket; None: not known. ``reasoning`` None: sold as output, as vendors do."""

    currency: str
    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write_5m: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None

    def __post_init__(self) -> None:
        for name, price in self.named():
            if not isinstance(price, Decimal) or not price.is_finite() or price < 0:
                raise BadInput("must be a Decimal that is not negative", field=name, value=price)

    def named(self) -> list[tuple[str, Decimal]]:
        """The prices that are known, by bucket."""
        found = [(part.name, getattr(self, part.name)) for part in fields(self) if part.name != "currency"]
        return [(name, price) for name, price in found if price is not None]


@dataclass(frozen=True, slots=True)
class VendorCost:
    """The cost, or None with the reason."""

    cost: Money | None
    reason: str = ""


def check_token_prices(prices: TokenPrices, *, confirmed: bool = False) -> None:
    """Refuse prices that look like a unit slip, unless a person confirmed them. Raises BadInput naming the bounds."""
    scale = UNITS_PER_USD.get(prices.currency, 1)
    low, high = (bound * scale for bound in BOUNDS_USD_PER_MILLION)
    for name, price in prices.named():
        if not (confirmed or low <= price <= high):
            raise BadInput(
                f"is outside {plain(low)}..{plain(high)} {prices.currency} per million tokens",
                field=name,
                value=plain(price),
                hint="check the unit (per million tokens); confirm it if it is right",
            )


def bucket_costs(tokens: TokenCounts | TokenSums, prices: TokenPrices) -> tuple[dict[str, Decimal], str]:
    """The cost of each bucket that has tokens, exact and not rounded, and ''; or none of them and the reason when one of them has
    no price. Reasoning is a part of output and is not counted twice."""
    reasoning = tokens.output_reasoning if prices.reasoning is not None else 0
    lines = (
        ("input", tokens.input_uncached, prices.input),
        ("cache_read", tokens.input_cache_read, prices.cache_read),
        ("cache_write_5m", tokens.input_cache_write_5m, prices.cache_write_5m),
        ("cache_write_1h", tokens.input_cache_write_1h, prices.cache_write_1h),
        ("output", tokens.output - reasoning, prices.output),
        ("reasoning", reasoning, prices.reasoning),
    )
    found: dict[str, Decimal] = {}
    with localcontext(CONTEXT):
        for name, count, price in lines:
            if count and price is None:
                return {}, f"{count} tokens of {name} and no price for them"
            if count and price is not None:
                found[name] = (count * price).scaleb(-PER_TOKENS)
    return found, ""


def vendor_cost(tokens: TokenCounts | TokenSums, prices: TokenPrices) -> VendorCost:
    """Each bucket at its own price, summed and never rounded."""
    costs, reason = bucket_costs(tokens, prices)
    return VendorCost(None, reason) if reason else VendorCost(Money(total(costs.values()), prices.currency))
