"""Exact money: Decimal amounts that carry their currency. Round only when printing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, DecimalException, localcontext
from typing import TypeVar

from core.errors import BadInput, CurrencyMismatch, UnsplittableCost

QUANTUM = Decimal("1e-12")
ZERO = Decimal(0)
CONTEXT = Context(prec=50, rounding=ROUND_HALF_EVEN)
"""Every division of money happens under this context (50 digits, half-even)."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Money:
    """An exact amount in one currency (ISO 4217 code)."""

    amount: Decimal
    currency: str

    def __post_init__(self) -> None:
        if not isinstance(self.amount, Decimal) or not self.amount.is_finite():
            raise BadInput("money must be a finite Decimal", field="amount", value=self.amount)
        if len(self.currency) != 3 or not self.currency.isupper():
            raise BadInput("currency must be a three-letter ISO 4217 code", field="currency", value=self.currency)

    def __add__(self, other: Money) -> Money:
        return Money(self.amount + self._same(other), self.currency)

    def __sub__(self, other: Money) -> Money:
        return Money(self.amount - self._same(other), self.currency)

    def __neg__(self) -> Money:
        return Money(-self.amount, self.currency)

    def times(self, factor: Decimal | int) -> Money:
        """The product, quantised to 1e-12."""
        with localcontext(CONTEXT):
            return Money(quantize(self.amount * factor), self.currency)

    def _same(self, other: Money) -> Decimal:
        if other.currency != self.currency:
            raise CurrencyMismatch(
                f"cannot combine {self.currency} and {other.currency} without a rate",
                hint="import an exchange rate for the usage date",
            )
        return other.amount


def money(text: str | int | Decimal, currency: str) -> Money:
    """Parse an amount; floats are not accepted, for they already lost the number."""
    if isinstance(text, float):
        raise BadInput("money must not come from a float", field="amount", value=text, hint="pass a decimal string")
    try:
        return Money(Decimal(text), currency)
    except DecimalException as error:
        raise BadInput("not a decimal number", field="amount", value=text) from error


def quantize(amount: Decimal) -> Decimal:
    """Round to the quantum 1e-12, half-even."""
    with localcontext(CONTEXT):
        return amount.quantize(QUANTUM)


def plain(amount: Decimal) -> str:
    """Plain notation without exponent and without trailing zeros: 1E-7 -> 0.0000001."""
    text = format(amount, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Exact sum under the money context."""
    with localcontext(CONTEXT):
        return sum(amounts, ZERO)


def split(whole: Decimal, weights: Mapping[K, Decimal | int]) -> dict[K, Decimal]:
    """Share ``whole`` by weight in quanta of 1e-12 by largest remainder; the shares add up to it exactly.

    Ties go to the smaller key (by ``repr``), so a replay gives the same shares. Negative weights are refused.
    ``whole`` may have more digits than the quantum: the rest goes to the first share in that order.
    """
    if any(weight < 0 for weight in weights.values()):
        raise UnsplittableCost("a weight is negative")
    with localcontext(CONTEXT):
        sum_weights = sum((Decimal(w) for w in weights.values()), ZERO)
        if sum_weights <= 0:
            raise UnsplittableCost("the weights sum to nothing", hint="name a line for the whole instead")
        sign = -1 if whole < 0 else 1
        quanta = (abs(whole) / QUANTUM).to_integral_value(ROUND_FLOOR)
        rest = abs(whole) - quanta * QUANTUM
        exact = {key: quanta * Decimal(w) / sum_weights for key, w in weights.items()}
        floors = {key: value.to_integral_value(ROUND_FLOOR) for key, value in exact.items()}
        left = int(quanta - sum(floors.values(), ZERO))
        order = sorted((k for k in weights if weights[k] > 0), key=lambda k: (floors[k] - exact[k], repr(k)))
        for key in order[:left]:
            floors[key] += 1
        shares = {key: sign * value * QUANTUM for key, value in floors.items()}
        if rest:
            shares[order[0]] += sign * rest
        return shares
