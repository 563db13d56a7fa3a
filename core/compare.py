"""Tokens of one's own engines beside the same tokens bought: what they cost, what a list says, from what use on own is cheaper.

A vendor sells prompts by length, at times of day and in ways of selling; one's own tokens are compared at the standard price of
the shortest prompts, at the time they were used. What the list does not price makes the comparison unknown, never cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, localcontext

from core.money import CONTEXT, ZERO, Money, quantize, total
from core.tokens import TokenSums
from core.vendor_book import PriceBook, quote
from core.vendor_price import vendor_cost

PER_MTOK = 1_000_000
SHARE_DIGITS = Decimal("0.0001")
ASSUMED = ("minutes with gateway tokens", "assumed")
"""How the names of utilisation sources that were not measured begin."""
NO_ENGINE = "none"
HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class TokenMix:
    """Tokens as the ledger counts them: ``input`` was computed (or written to a cache), ``input_cached`` read from one."""

    input: int = 0
    input_cached: int = 0
    output: int = 0

    def __add__(self, other: TokenMix) -> TokenMix:
        return TokenMix(self.input + other.input, self.input_cached + other.input_cached, self.output + other.output)

    @property
    def total(self) -> int:
        return self.input + self.input_cached + self.output


@dataclass(frozen=True, slots=True)
class OwnUse:
    """What one's own tokens cost in a period: ``allocation`` with idle and starting time borne by the work, ``usage`` without."""

    currency: str
    allocation: Decimal
    usage: Decimal
    mix: TokenMix
    utilisation_source: str = ""


@dataclass(frozen=True, slots=True)
class BoughtMix:
    """What the same tokens would have cost at a list, or None with the reason."""

    cost: Money | None
    labels: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Per million tokens of the same mix. ``times``: own (allocation basis) over bought, divided last. ``break_even``: share of
    busy time at which the own cost of a token equals the vendor's; above 1 it never does at this price. None has its reason."""

    own_allocation: Decimal | None
    own_usage: Decimal | None
    bought: Decimal | None
    times: Decimal | None
    utilisation: Decimal | None
    break_even: Decimal | None
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What engines of one model did on one GPU type: tokens, and GPU-microseconds watched and busy."""

    model: str
    gpu_type: str
    tokens: int
    output_tokens: int
    busy_gpu_us: int
    observed_gpu_us: int


@dataclass(frozen=True, slots=True)
class HardwareCost:
    """Tokens a second and GPU while busy, and what a million costs: at the use the GPUs had, and if they were never idle."""

    tokens_per_gpu_s: Decimal | None
    output_per_gpu_s: Decimal | None
    utilisation: Decimal | None
    per_mtok_at_use: Decimal | None
    per_mtok_full: Decimal | None
    reason: str = ""


def bought_mix(parts: Iterable[tuple[datetime, TokenMix]], book: PriceBook, vendor: str, model: str) -> BoughtMix:
    """The tokens of each part at the standard price in force at its instant, summed exactly."""
    amounts: list[Decimal] = []
    labels: dict[str, None] = {}
    currencies: dict[str, None] = {}
    for at, mix in parts:
        if not mix.total:
            continue
        found = quote(book, vendor, model, at)
        if found.prices is None:
            return BoughtMix(None, (), found.reason, found.hint)
        tokens = TokenSums(input_uncached=mix.input, input_cache_read=mix.input_cached, output=mix.output)
        cost = vendor_cost(tokens, found.prices)
        if cost.cost is None:
            reason = cost.reason.split(" tokens of ")[-1].removesuffix(" and no price for them")
            return BoughtMix(
                None, (), f"{found.label} has no price of {reason}", "name another list with --source, or type the price"
            )
        amounts.append(cost.cost.amount)
        labels[found.label], currencies[cost.cost.currency] = None, None
    if not amounts:
        return BoughtMix(None, (), "no tokens in the period")
    if len(currencies) > 1:
        return BoughtMix(None, tuple(labels), f"its prices are in {' and '.join(sorted(currencies))}, which are never added")
    return BoughtMix(Money(total(amounts), next(iter(currencies))), tuple(labels))


def compare(own: OwnUse, bought: BoughtMix) -> Comparison:
    """Own cost beside bought cost of the same tokens, every ratio divided last."""
    reasons: dict[str, str] = {}
    count, price = own.mix.total, bought.cost
    if not count:
        reasons |= dict.fromkeys(("own_allocation", "own_usage"), "no tokens in closed, priced quarter hours")
    if price is None:
        reasons |= dict.fromkeys(("bought", "times", "break_even"), bought.reason)
    elif price.currency != own.currency:
        mixed = f"own cost is in {own.currency}, the list in {price.currency}: no exchange rate is assumed"
        reasons |= dict.fromkeys(("times", "break_even"), mixed)
    elif price.amount == 0:
        reasons |= dict.fromkeys(("times", "break_even"), "the list gives these tokens away")
    if own.allocation <= 0:
        reasons["utilisation"] = "no capacity cost in the period"
    lacking = _not_measured(own.utilisation_source)
    if lacking:
        reasons.setdefault("break_even", f"busy time was not measured ({lacking})")
    known = price.amount if price is not None else ZERO
    return Comparison(
        own_allocation=_per_mtok(own.allocation, count), own_usage=_per_mtok(own.usage, count),
        bought=_per_mtok(known, count) if price is not None else None,
        times=None if "times" in reasons else _share(own.allocation, known),
        utilisation=None if "utilisation" in reasons else _share(own.usage, own.allocation),
        break_even=None if "break_even" in reasons else _share(own.usage, known), reasons=reasons,
    )  # fmt: skip


def _not_measured(source: str) -> str:
    """Which of the sources, joined by "; ", were not measured; '' where all that tell of busy time were."""
    parts = [part for part in source.split("; ") if part and not part.startswith(NO_ENGINE)]
    return "; ".join(part for part in parts if part.startswith(ASSUMED)) if parts else "nothing watched the engines"


def verdict(found: Comparison) -> str:
    """What the figures say, in words."""
    if found.break_even is None or found.utilisation is None:
        return "unknown"
    if found.break_even > 1:
        return "never at this price"
    return "own is cheaper" if found.utilisation >= found.break_even else "bought is cheaper at this use"


def hardware_cost(found: Measured | None, gpu_hour: Decimal) -> HardwareCost:
    """A million tokens on a GPU of this hourly price, from what was measured on it; nothing is scaled from another GPU."""
    if found is None:
        return HardwareCost(None, None, None, None, None, "not measured here")
    if found.busy_gpu_us <= 0 or found.tokens <= 0:
        return HardwareCost(None, None, None, None, None, "watched, but never busy in this period")
    with localcontext(CONTEXT):
        per_s = Decimal(found.tokens) * 1_000_000 / found.busy_gpu_us
        output_s = Decimal(found.output_tokens) * 1_000_000 / found.busy_gpu_us
        full = gpu_hour * found.busy_gpu_us * PER_MTOK / (HOUR_S * PER_MTOK * Decimal(found.tokens))
        at_use = gpu_hour * found.observed_gpu_us * PER_MTOK / (HOUR_S * PER_MTOK * Decimal(found.tokens))
    return HardwareCost(
        quantize(per_s), quantize(output_s), _share(Decimal(found.busy_gpu_us), Decimal(found.observed_gpu_us)),
        quantize(at_use), quantize(full),
    )  # fmt: skip


def _per_mtok(amount: Decimal, count: int) -> Decimal | None:
    if count <= 0:
        return None
    with localcontext(CONTEXT):
        return quantize(amount * PER_MTOK / count)


def _share(part: Decimal, whole: Decimal) -> Decimal | None:
    if whole <= 0:
        return None
    with localcontext(CONTEXT):
        return (part / whole).quantize(SHARE_DIGITS)
