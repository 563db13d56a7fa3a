"""Length buckets as people read them, and the spread of lengths: from the mergeable histograms of ``core.lengths``."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, localcontext

from core.lengths import ZERO_BUCKET
from core.money import CONTEXT

PER_DOUBLING = 4
UNITS: tuple[tuple[int, str], ...] = ((1 << 20, " M"), (1 << 10, " K"), (1, ""))


def doubling(bucket: int) -> int:
    """The doubling a quarter bucket lies in: d for lengths in [2^d, 2^(d+1)), -1 for 0."""
    return ZERO_BUCKET if bucket < 0 else bucket // PER_DOUBLING


def doubling_label(number: int) -> str:
    """``4–8 K tokens``; K is 1,024 and M 1,048,576, as in context lengths."""
    if number < 0:
        return "0 tokens"
    low, high = 1 << number, 2 << number
    if low == 1:
        return "1 token"
    size, letter = next((size, letter) for size, letter in UNITS if high >= 2 * size or size == 1)
    if low < size:
        return f"{low}–{high // size}{letter} tokens"
    return f"{low // size}–{high // size}{letter} tokens"


def quantile(requests: Mapping[int, int], share: Decimal) -> Decimal | None:
    """The length below which ``share`` of the requests lie, by quarter buckets: exact to a bucket (19 %), interpolated on the
    logarithm within it. None without requests; 0 where it falls into the requests of length 0."""
    whole = sum(requests.values())
    if not whole:
        return None
    with localcontext(CONTEXT):
        wanted, passed = share * whole, Decimal(0)
        for bucket in sorted(requests):
            here = requests[bucket]
            if here and passed + here >= wanted:
                return Decimal(0) if bucket < 0 else _edge(bucket + (wanted - passed) / here)
            passed += here
    return _edge(Decimal(max(requests) + 1))


def spread(requests: Mapping[int, int]) -> Decimal | None:
    """P90 / P50 of the lengths, two decimals: the field's mark for lengths too unlike to be served together is 4. None where the
    median is 0 or nothing was counted."""
    p50, p90 = quantile(requests, Decimal("0.5")), quantile(requests, Decimal("0.9"))
    if not p50 or p90 is None:
        return None
    with localcontext(CONTEXT):
        return (p90 / p50).quantize(Decimal("0.01"))


def _edge(place: Decimal) -> Decimal:
    """2^(place / 4)."""
    with localcontext(CONTEXT):
        return (Decimal(2) ** (place / PER_DOUBLING)).quantize(Decimal("0.1"))
