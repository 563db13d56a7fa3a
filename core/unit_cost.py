"""Cost of a million tokens and of a request: Σ cost / Σ tokens, divided last; undefined is None with a reason, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Literal

from core.money import CONTEXT, ZERO, quantize

CostBasis = Literal["allocation", "usage"]
COST_BASES: tuple[CostBasis, ...] = ("allocation", "usage")
TOKEN_KINDS: tuple[str, ...] = ("input", "input_cached", "output")
PER = 1_000_000


@dataclass(frozen=True, slots=True)
class CostSum:
    """Mergeable sums of ledger lines: cost and tokens per token kind ('' = cost of no token kind), and requests.

    ``unpriced_tokens`` lie in windows whose capacity cost is unknown; they are in none of the sums.
    """

    cost: Mapping[str, Decimal] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    requests: int = 0
    unpriced_tokens: int = 0

    def __add__(self, other: CostSum) -> CostSum:
        cost = {k: self.cost.get(k, ZERO) + other.cost.get(k, ZERO) for k in {*self.cost, *other.cost}}
        tokens = {k: self.tokens.get(k, 0) + other.tokens.get(k, 0) for k in {*self.tokens, *other.tokens}}
        return CostSum(cost, tokens, self.requests + other.requests, self.unpriced_tokens + other.unpriced_tokens)


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Per million tokens (input, cached input, output, blended) and per request, each None with its reason in ``reasons``."""

    input_per_mtok: Decimal | None
    input_cached_per_mtok: Decimal | None
    output_per_mtok: Decimal | None
    blended_per_mtok: Decimal | None
    per_request: Decimal | None
    reasons: Mapping[str, str]


def unit_cost(sums: CostSum) -> UnitCost:
    """Divide the sums. Cost of no token kind (idle of a period without work) counts in blended and per request only."""
    whole = sum(sums.cost.values(), ZERO)
    all_tokens = sum(sums.tokens.get(kind, 0) for kind in TOKEN_KINDS)
    reasons: dict[str, str] = {}
    per_kind = {
        kind: _ratio(
            sums.cost.get(kind, ZERO), sums.tokens.get(kind, 0), PER, f"{kind}_per_mtok", f"no {kind} tokens", sums, reasons
        )
        for kind in TOKEN_KINDS
    }
    blended = _ratio(whole, all_tokens, PER, "blended_per_mtok", "no tokens", sums, reasons)
    per_request = _ratio(whole, sums.requests, 1, "per_request", "no requests", sums, reasons)
    return UnitCost(per_kind["input"], per_kind["input_cached"], per_kind["output"], blended, per_request, reasons)


def _ratio(
    cost: Decimal, count: int, per: int, name: str, lacking: str, sums: CostSum, reasons: dict[str, str]
) -> Decimal | None:
    if count > 0:
        with localcontext(CONTEXT):
            return quantize(cost * per / count)
    priced = f"{lacking} in closed, priced windows"
    reasons[name] = f"{priced}; {sums.unpriced_tokens} tokens have no price" if sums.unpriced_tokens else priced
    return None
