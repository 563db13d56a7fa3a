"""A discount a person typed, until a bill says what is really paid: list prices less so many percent, labelled as such.

The result is a rate on the basis ``contracted``: it goes before the list price and after whatever a bill or a signed price says.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext

from core.errors import BadInput
from core.money import CONTEXT, Money, plain, quantize
from core.rates import RATE_KINDS, Rate, RateKind, sku_key
from core.windows import require_utc

Span = tuple[datetime, datetime | None]
DISCOUNTED: tuple[str, ...] = tuple(kind for kind in RATE_KINDS if kind != "pue")


@dataclass(frozen=True, slots=True)
class Discount:
    """``percent`` off every list price of ``kind`` whose source names ``provider``, in ``[valid_from, valid_to)``."""

    provider: str
    kind: RateKind
    percent: Decimal
    valid_from: datetime
    valid_to: datetime | None
    reason: str
    typed_by: str

    def __post_init__(self) -> None:
        for name, value in (("provider", self.provider), ("reason", self.reason), ("typed_by", self.typed_by)):
            if not value.strip():
                raise BadInput("must not be empty", field=name, value=value)
        if self.kind not in DISCOUNTED:
            raise BadInput(f"must be one of {', '.join(DISCOUNTED)}", field="kind", value=self.kind)
        if not self.percent.is_finite() or not 0 < self.percent < 100:
            raise BadInput("must be above 0 and below 100", field="percent", value=str(self.percent), hint="28 means 28 % off")
        start = require_utc(self.valid_from, "valid_from")
        if self.valid_to is not None and require_utc(self.valid_to, "valid_to") <= start:
            raise BadInput("must be after valid_from", field="valid_to", value=self.valid_to.isoformat())

    def applies_to(self, rate: Rate) -> bool:
        """Whether it is this provider's list price: its source names the provider as a word."""
        word = rf"(?<![a-z0-9]){re.escape(self.provider.casefold())}(?![a-z0-9])"
        return rate.charge_basis == "list" and rate.kind == self.kind and re.search(word, rate.source.casefold()) is not None

    @property
    def label(self) -> str:
        return f"list × (1 − {plain(self.percent)} %), typed by {self.typed_by} ({self.reason})"


def discounted(rates: Sequence[Rate], discounts: Iterable[Discount]) -> tuple[Rate, ...]:
    """The contracted rates that ``discounts`` make of list ``rates``.

    Where a person gave a contracted price of the same name it stands, and none is made. Of two discounts at once the one that
    began later holds. Ordered so that ``core.rates.rate_at`` finds the price that the list has at each instant.
    """
    signed: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for rate in rates:
        if rate.charge_basis == "contracted":
            signed[rate.kind, sku_key(rate.sku)].append((rate.valid_from, rate.valid_to))
    listed = sorted((rate for rate in rates if rate.charge_basis == "list"), key=lambda rate: rate.valid_from)
    found: list[Rate] = []
    for discount in sorted(discounts, key=lambda one: one.valid_from):
        for rate in listed:
            both = _both((rate.valid_from, rate.valid_to), (discount.valid_from, discount.valid_to))
            if both is not None and discount.applies_to(rate):
                free = _without(both, signed[rate.kind, sku_key(rate.sku)])
                found += [_made(rate, discount, span) for span in free]
    return tuple(found)


def _made(rate: Rate, discount: Discount, span: Span) -> Rate:
    with localcontext(CONTEXT):
        price = Money(quantize(rate.price.amount * (100 - discount.percent) / 100), rate.price.currency)
    source = f"{discount.label}; {rate.source}"
    return replace(rate, price=price, charge_basis="contracted", source=source, valid_from=span[0], valid_to=span[1])


def _both(one: Span, other: Span) -> Span | None:
    ends = [end for end in (one[1], other[1]) if end is not None]
    start, end = max(one[0], other[0]), min(ends) if ends else None
    return (start, end) if end is None or start < end else None


def _without(span: Span, taken: Iterable[Span]) -> list[Span]:
    """What of ``span`` lies in none of ``taken``."""
    left = [span]
    for start, end in sorted(taken, key=lambda one: one[0]):
        parts: list[Span | None] = []
        for one in left:
            parts.append(_both(one, (one[0], start)) if one[0] < start else None)
            if end is not None:
                parts.append(_both(one, (end, None)))
        left = [part for part in parts if part is not None]
    return left
