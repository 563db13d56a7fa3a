"""Numbers and times as people read them. Only here are numbers rounded; unknown stays unknown, never zero."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

from core.money import CONTEXT

UNKNOWN = "unknown"
SIGNIFICANT = 4
MOST_PLACES = 12
SIZES = ((1_000_000_000, "B"), (1_000_000, "M"))


def rounded(value: Decimal, places: int) -> Decimal:
    """Half-even to ``places`` decimals."""
    with localcontext(CONTEXT):
        return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)


def places_of(value: Decimal) -> int:
    """Decimals to show: two from 1 up, below that as many as give four significant digits."""
    if value == 0 or abs(value) >= 1:
        return 2
    return min(MOST_PLACES, SIGNIFICANT - value.adjusted() - 1)


def column_places(values: Iterable[Decimal | None]) -> int:
    """Decimals for a whole column, so that its numbers align: for its smallest, at most four more than for its largest."""
    known = [places_of(value) for value in values if value]
    return min(max(known), min(known) + SIGNIFICANT) if known else 2


def money(amount: str | None, currency: str | None) -> str:
    """An exact decimal with its currency: two decimals from 1 up, else four significant digits."""
    if amount is None:
        return UNKNOWN
    value = Decimal(amount)
    return f"{rounded(value, places_of(value)):,f} {currency or ''}".strip()


def percent(share: str | float | None) -> str:
    """A share as per cent with one decimal; what is more than nothing never reads as nothing."""
    if share is None:
        return UNKNOWN
    value = Decimal(str(share)) * 100
    shown = rounded(value, 1)
    return "under 0.1 %" if value > 0 and shown == 0 else f"{shown:,f} %"


def count(number: int) -> str:
    """Thousands separated up to a million, then with two decimals and M (million) or B (thousand million)."""
    for size, letter in SIZES:
        if number >= size:
            return f"{rounded(Decimal(number) / size, 2):,f} {letter}"
    return f"{number:,}"


def change(now: str | None, before: str | None) -> str | None:
    """Relative change in per cent, or None where either is unknown or the first is zero."""
    moved = change_percent(now, before)
    return None if moved is None else f"{moved:+,f} %"


def change_percent(now: str | None, before: str | None) -> Decimal | None:
    """Per cent with one decimal by which ``now`` differs from ``before``; None where undefined."""
    if now is None or before is None or Decimal(before) == 0:
        return None
    with localcontext(CONTEXT):
        return rounded((Decimal(now) - Decimal(before)) / abs(Decimal(before)) * 100, 1)


def times(ratio: str | None) -> str:
    """A multiple of the plan, such as ``1.30×``."""
    return UNKNOWN if ratio is None else f"{rounded(Decimal(ratio), 2):,f}×"


def stamp(text: str | None) -> str:
    """A time of the API as ``YYYY-MM-DD HH:MM`` UTC; absent is empty."""
    return "" if not text else datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def age(since: datetime, now: datetime) -> str:
    """How long ago, in the largest unit that keeps two digits of meaning."""
    seconds = max(0, round((now - since).total_seconds()))
    for size, unit in ((172_800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds // {'days': 86_400, 'h': 3600, 'min': 60}[unit]} {unit}"
    return f"{seconds} s"
