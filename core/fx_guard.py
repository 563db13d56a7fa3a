"""Which exchange rates of an import may be believed: each line judged against the others and against what is known.

Refused are two rates of one pair and day, a rate and its inverse that contradict each other, and jumps a person has not confirmed
(a slipped decimal, the pair the wrong way round). A rate that is known already with this value is never refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

from core.errors import BadInput
from core.fx import FxRate
from core.money import plain

MAX_CONTRADICTION = Fraction(1, 100)
"""How far a rate times its inverse may be off 1: more than rounding and a bank's two prices explain."""
MAX_JUMP = Fraction(1, 4)
NEAR = timedelta(days=366)
"""Rates further apart say nothing of each other: currencies do move by a quarter in years."""
Key = tuple[date, str, str]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GivenRate:
    """A rate and the place it was read at ("fx.csv:3")."""

    rate: FxRate
    where: str

    @property
    def key(self) -> Key:
        return self.rate.day, self.rate.base, self.rate.quote

    @property
    def inverse_key(self) -> Key:
        return self.rate.day, self.rate.quote, self.rate.base


@dataclass(frozen=True, slots=True)
class GuardedFx:
    """``kept`` in the order they were given; ``refused``: "FILE:LINE: rate: …", in that order too."""

    kept: tuple[FxRate, ...]
    refused: tuple[str, ...]


def guard_fx(given: Sequence[GivenRate], known: Iterable[FxRate], *, jumps_confirmed: bool = False) -> GuardedFx:
    """Judge the rates of one import; ``known``: those stored, in the order they came."""
    held = {(rate.day, rate.base, rate.quote): rate for rate in known}
    faults: dict[int, BadInput] = {}
    by_key: dict[Key, list[GivenRate]] = defaultdict(list)
    for one in given:
        by_key[one.key].append(one)
    for place, one in enumerate(given):
        fault = _twice(one, by_key) or _contradicted(one, by_key, held)
        if fault is not None:
            faults[place] = fault
    if not jumps_confirmed:
        faults |= _jumps(given, faults, held)
    refused = [_named(given[place], faults[place]) for place in sorted(faults)]
    return GuardedFx(tuple(one.rate for place, one in enumerate(given) if place not in faults), tuple(refused))


def _twice(one: GivenRate, by_key: Mapping[Key, Sequence[GivenRate]]) -> BadInput | None:
    other = next((other for other in by_key[one.key] if other.rate.rate != one.rate.rate), None)
    if other is None:
        return None
    return BadInput(
        f"{other.where} says {plain(other.rate.rate)} for {_pair(one)} on the same day",
        field="rate", value=plain(one.rate.rate), hint="keep the one that is right",
    )  # fmt: skip


def _contradicted(one: GivenRate, by_key: Mapping[Key, Sequence[GivenRate]], held: Mapping[Key, FxRate]) -> BadInput | None:
    """The inverse of the same import goes before a stored one, so both can be corrected together."""
    if _is_known(one, held):
        return None
    beside = by_key.get(one.inverse_key)
    other = beside[0].rate if beside else held.get(one.inverse_key)
    if other is None or abs(Fraction(one.rate.rate) * Fraction(other.rate) - 1) <= MAX_CONTRADICTION:
        return None
    place = beside[0].where if beside else f"known already ({other.source})"
    return BadInput(
        f"1 {one.rate.base} = {plain(one.rate.rate)} {one.rate.quote} contradicts 1 {other.base} = {plain(other.rate)} "
        f"{other.quote} of that day, {place}: multiplied they are more than 1 % off 1",
        field="rate", value=plain(one.rate.rate), hint="correct the wrong one; give both in one file to replace both",
    )  # fmt: skip


def _jumps(given: Sequence[GivenRate], faults: Mapping[int, BadInput], held: Mapping[Key, FxRate]) -> dict[int, BadInput]:
    """Day by day, so that what a line is compared with has itself been judged."""
    stored = _Known(held.values())
    taken: dict[Pair, FxRate] = {}
    found: dict[int, BadInput] = {}
    for place in sorted(range(len(given)), key=lambda place: given[place].rate.day):
        one = given[place]
        if place in faults:
            continue
        near = None if _is_known(one, held) else stored.nearest(one.rate, taken.get(_sorted(one.rate)))
        if near is not None and _is_jump(one.rate, near):
            found[place] = _jump(one, near)
        else:
            taken[_sorted(one.rate)] = one.rate
    return found


class _Known:
    """Stored rates by pair, whichever way round, in order of their days."""

    def __init__(self, rates: Iterable[FxRate]) -> None:
        by_pair: dict[Pair, dict[date, FxRate]] = defaultdict(dict)
        for rate in rates:
            by_pair[_sorted(rate)][rate.day] = rate
        self._rates = by_pair
        self._days = {pair: sorted(days) for pair, days in by_pair.items()}

    def nearest(self, rate: FxRate, taken: FxRate | None) -> FxRate | None:
        """Of the nearest other day; the day's own former rate only where no other is near: a correction mends that one."""
        pair = _sorted(rate)
        days = self._days.get(pair, [])
        at = bisect_left(days, rate.day)
        own = days[at : at + 1] == [rate.day]
        around = [*days[max(at - 1, 0) : at], *days[at + own : at + own + 1]]
        others = [self._rates[pair][day] for day in around]
        if taken is not None and taken.day < rate.day:
            others.append(taken)
        near = [other for other in others if abs(other.day - rate.day) <= NEAR]
        if near:
            return min(reversed(near), key=lambda other: abs(other.day - rate.day))
        return self._rates[pair][rate.day] if own else None


def _is_known(one: GivenRate, held: Mapping[Key, FxRate]) -> bool:
    former = held.get(one.key)
    return former is not None and former.rate == one.rate.rate


def _is_jump(rate: FxRate, near: FxRate) -> bool:
    return abs(Fraction(rate.rate) / _in_direction_of(rate, near) - 1) > MAX_JUMP


def _jump(one: GivenRate, near: FxRate) -> BadInput:
    compared = Decimal(f"{round(_in_direction_of(one.rate, near) * 10**6)}E-6")
    percent = round((Fraction(one.rate.rate) / _in_direction_of(one.rate, near) - 1) * 100)
    return BadInput(
        f"{_pair(one)} is {percent:+d} % against {plain(compared)} on {near.day.isoformat()}, the nearest known day",
        field="rate", value=plain(one.rate.rate), hint="check the number and the direction; --confirm-jump if it is right",
    )  # fmt: skip


def _in_direction_of(rate: FxRate, other: FxRate) -> Fraction:
    return Fraction(other.rate) if other.base == rate.base else 1 / Fraction(other.rate)


def _sorted(rate: FxRate) -> Pair:
    return (rate.base, rate.quote) if rate.base < rate.quote else (rate.quote, rate.base)


def _pair(one: GivenRate) -> str:
    return f"{one.rate.base}/{one.rate.quote}"


def _named(one: GivenRate, fault: BadInput) -> str:
    fault.where = one.where
    return str(fault)
