"""Order-free attribution of a change to the factors that changed: exact Shapley values in fractions.

The effect of a factor is its marginal change averaged over every order in which the factors could have moved from their first
to their second value (Shapley 1953). So no order has to be chosen, the effects add up to the change, a factor that did not
change has effect 0, and exchanging the two sides negates every effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations
from math import factorial

from core.money import CONTEXT, ZERO, total

QUANTA_PER_UNIT = 10**12
MAX_FACTORS = 12
"""2^12 evaluations; more factors want to be grouped."""


def shapley(factors: Sequence[str], value: Callable[[frozenset[str]], Fraction]) -> dict[str, Fraction]:
    """Effect of each factor; ``value(changed)`` is the outcome with those factors at their second value, the rest at the first.

    Σ effects == value(all) - value(none), exactly. Raises ValueError for more than 12 factors.
    """
    count = len(factors)
    if count > MAX_FACTORS:
        raise ValueError(f"{count} factors are too many for exact Shapley values; group them")
    known = {frozenset(chosen): Fraction(0) for size in range(count + 1) for chosen in combinations(factors, size)}
    for changed in known:
        known[changed] = value(changed)
    effects = dict.fromkeys(factors, Fraction(0))
    for changed, before in known.items():
        if len(changed) == count:
            continue
        orders = Fraction(factorial(len(changed)) * factorial(count - len(changed) - 1), factorial(count))
        for factor in effects.keys() - changed:
            effects[factor] += orders * (known[changed | {factor}] - before)
    return effects


def round_parts(whole: Decimal, parts: Mapping[str, Fraction]) -> dict[str, Decimal]:
    """The parts in quanta of 1e-12, half-even; what rounding leaves goes to the largest, so that they add up to ``whole``.

    Parts of the opposite sign round to the opposite amounts; a part of 0 stays 0.
    """
    with localcontext(CONTEXT):
        rounded = {name: Decimal(round(part * QUANTA_PER_UNIT)).scaleb(-12) for name, part in parts.items()}
        rest = whole - total(rounded.values())
        if rest != ZERO:
            largest = max(parts, key=lambda name: (abs(parts[name]), name))
            rounded[largest] += rest
    return rounded


def known_pair(before: Fraction | None, after: Fraction | None) -> tuple[Fraction, Fraction]:
    """A factor that one period cannot tell is taken from the other: unknown is not a change."""
    first = before if before is not None else after
    second = after if after is not None else before
    return (first if first is not None else Fraction(0), second if second is not None else Fraction(0))
