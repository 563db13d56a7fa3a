"""Exchange rates: dated, sourced, and never guessed. A conversion is one exact fraction, rounded once to the quantum 1e-12.

The rate of a day is the newest one on or before it, of either direction, if it is young enough; a third currency is used only
where it is named. What has no rate stays in its own currency and is said, with the pair and the day that are missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from core.errors import BadInput
from core.money import QUANTUM, ZERO, Money, plain, total

MAX_AGE = timedelta(days=7)
"""Banks publish no rate on weekends and holidays; an older one is no rate of the day any more."""
_QUANTA = int(1 / QUANTUM)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class FxRate:
    """On ``day`` one unit of ``base`` was worth ``rate`` units of ``quote``."""

    day: date
    base: str
    quote: str
    rate: Decimal
    source: str

    def __post_init__(self) -> None:
        for name, code in (("base", self.base), ("quote", self.quote)):
            if len(code) != 3 or not code.isascii() or not code.isalpha() or not code.isupper():
                raise BadInput("currency must be a three-letter ISO 4217 code", field=name, value=code)
        if self.base == self.quote:
            raise BadInput("is the base itself", field="quote", value=self.quote)
        if not self.rate.is_finite() or self.rate <= 0:
            raise BadInput("must be a positive number", field="rate", value=str(self.rate))
        if not self.source.strip():
            raise BadInput("must say where the rate is from", field="source", value=self.source)


@dataclass(frozen=True, slots=True)
class Leg:
    """One step of a conversion: multiply by the rate, or (``inverse``) divide by it."""

    rate: FxRate
    inverse: bool

    @property
    def factor(self) -> Fraction:
        return 1 / Fraction(self.rate.rate) if self.inverse else Fraction(self.rate.rate)

    def __str__(self) -> str:
        named = f"1 {self.rate.base} = {plain(self.rate.rate)} {self.rate.quote}"
        return f"{named} on {self.rate.day.isoformat()} ({self.rate.source})"


@dataclass(frozen=True, slots=True)
class Path:
    """How one currency becomes another on a day. ``legs`` is None, with the reason, where that is not known."""

    legs: tuple[Leg, ...] | None
    reason: str = ""

    @property
    def factor(self) -> Fraction:
        found = Fraction(1)
        for leg in self.legs or ():
            found *= leg.factor
        return found

    def __str__(self) -> str:
        return " × ".join(map(str, self.legs or ()))


@dataclass(frozen=True, slots=True)
class FxBook:
    """The rates known; of several for one day and pair the one given last holds. ``via``: a third currency that may stand between
    two that have no rate of their own; '' allows none."""

    rates: tuple[FxRate, ...] = ()
    max_age: timedelta = MAX_AGE
    via: str = ""
    _days: dict[tuple[str, str], dict[date, FxRate]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        days: dict[tuple[str, str], dict[date, FxRate]] = defaultdict(dict)
        for rate in self.rates:
            days[rate.base, rate.quote][rate.day] = rate
        object.__setattr__(self, "_days", dict(days))

    def path(self, base: str, quote: str, day: date) -> Path:
        """Direct or inverse, whichever is newer (direct of equals); else over ``via``; else the reason."""
        if base == quote:
            return Path(())
        direct = self._leg(base, quote, day)
        if direct is not None:
            return Path((direct,))
        if self.via and self.via not in (base, quote):
            legs = self._leg(base, self.via, day), self._leg(self.via, quote, day)
            if legs[0] is not None and legs[1] is not None:
                return Path((legs[0], legs[1]))
        over = f" (nor over {self.via})" if self.via else ""
        return Path(None, f"no rate {base}/{quote}{over} within {self.max_age.days} days up to {day.isoformat()}")

    def _leg(self, base: str, quote: str, day: date) -> Leg | None:
        straight, back = self._newest(base, quote, day), self._newest(quote, base, day)
        if straight is not None and (back is None or straight.day >= back.day):
            return Leg(straight, inverse=False)
        return None if back is None else Leg(back, inverse=True)

    def _newest(self, base: str, quote: str, day: date) -> FxRate | None:
        known = self._days.get((base, quote), {})
        ages = (timedelta(days=age) for age in range(self.max_age.days + 1))
        return next((known[day - age] for age in ages if day - age in known), None)


@dataclass(frozen=True, slots=True)
class Converted:
    """Money in another currency and the path it came by, or None with the reason."""

    money: Money | None
    path: Path
    reason: str = ""


def convert(amount: Money, to: str, day: date, book: FxBook) -> Converted:
    """``amount`` of ``day`` in ``to``. Equal currencies need no rate and keep every digit."""
    path = book.path(amount.currency, to, day)
    if path.legs is None:
        return Converted(None, path, path.reason)
    return Converted(Money(_times(amount.amount, path), to), path)


def convert_parts(parts: Mapping[K, Decimal], path: Path) -> dict[K, Decimal]:
    """Parts of one currency and day in another; they add up to their converted sum exactly.

    Each part is its exact value rounded down to the quantum, and the quanta left go to the largest fractions (ties: the smaller
    key), so no part is further than one quantum from its own value. Parts may be negative (credits).
    """
    if path.legs == ():
        return dict(parts)
    exact = {key: Fraction(amount) * path.factor * _QUANTA for key, amount in parts.items()}
    floors = {key: value.numerator // value.denominator for key, value in exact.items()}
    left = round(sum(exact.values(), Fraction(0))) - sum(floors.values())
    order = sorted(parts, key=lambda key: (floors[key] - exact[key], repr(key)))
    for key in order[:left]:
        floors[key] += 1
    return {key: _decimal(quanta) for key, quanta in floors.items()}


@dataclass(frozen=True, slots=True)
class DatedRow:
    """Amounts of one currency and day that belong to a group. ``amounts``: name to money, None unknown. ``counts``: what is
    summed beside them and has no currency."""

    group: tuple[Hashable, ...]
    currency: str
    day: date
    amounts: Mapping[str, Decimal | None]
    counts: Mapping[str, Decimal | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSum:
    """A group's amounts in ``currency``. ``original``: what they are the sum of, by currency. ``reason``: why these amounts are
    still in their own currency; '' where they are in the one asked for."""

    group: tuple[Hashable, ...]
    currency: str
    amounts: Mapping[str, Decimal | None]
    original: Mapping[str, Mapping[str, Decimal | None]]
    counts: Mapping[str, Decimal | None]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SumsIn:
    """Groups in one currency. ``missing``: (base, quote, day) without a rate; their money stands in rows of its own, never
    added. ``paths``: the rates used."""

    rows: tuple[GroupSum, ...]
    missing: tuple[tuple[str, str, date], ...]
    paths: tuple[str, ...]


def sums_in(rows: Sequence[DatedRow], to: str, book: FxBook) -> SumsIn:
    """Sum rows by group in one currency, each day at its own rate.

    Per currency, day and name the whole is converted once and its parts add up to it, so sums by any grouping agree exactly.
    """
    days: dict[tuple[str, date], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        days[row.currency, row.day].append(place)
    converted: dict[int, Mapping[str, Decimal | None]] = {}
    reasons: dict[int, str] = {}
    missing, paths = [], []
    for (currency, day), places in sorted(days.items()):
        path = book.path(currency, to, day)
        if path.legs is None:
            missing.append((currency, to, day))
            reasons |= dict.fromkeys(places, path.reason)
            continue
        paths += [str(path)] if path.legs else []
        converted |= _converted(rows, places, path)
    return SumsIn(_grouped(rows, to, converted, reasons), tuple(missing), tuple(dict.fromkeys(paths)))


def _converted(rows: Sequence[DatedRow], places: Sequence[int], path: Path) -> dict[int, Mapping[str, Decimal | None]]:
    found: dict[int, dict[str, Decimal | None]] = {place: dict(rows[place].amounts) for place in places}
    for name in dict.fromkeys(name for place in places for name in rows[place].amounts):
        known = {place: amount for place in places if (amount := rows[place].amounts.get(name)) is not None}
        for place, amount in convert_parts(known, path).items():
            found[place][name] = amount
    return dict(found)


def _grouped(
    rows: Sequence[DatedRow], to: str, converted: Mapping[int, Mapping[str, Decimal | None]], reasons: Mapping[int, str]
) -> tuple[GroupSum, ...]:
    groups: dict[tuple[tuple[Hashable, ...], str, bool], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        groups[row.group, row.currency if place in reasons else to, place in reasons].append(place)
    found = []
    for (group, currency, refused), places in groups.items():
        amounts = _sums(rows[place].amounts if refused else converted[place] for place in places)
        own = {rows[place].currency for place in places}
        original = {code: _sums(rows[p].amounts for p in places if rows[p].currency == code) for code in sorted(own)}
        reason = "; ".join(dict.fromkeys(reasons[place] for place in places)) if refused else ""
        counts = _sums(rows[place].counts for place in places)
        found.append(GroupSum(group, currency, amounts, original, counts, _shortened(reason)))
    return tuple(found)


def _sums(amounts: Iterable[Mapping[str, Decimal | None]]) -> dict[str, Decimal | None]:
    """Unknown is left out of a sum, as SQL does; a name that is unknown everywhere stays unknown."""
    listed = list(amounts)
    names = dict.fromkeys(name for one in listed for name in one)
    found: dict[str, Decimal | None] = {}
    for name in names:
        known = [value for one in listed if (value := one.get(name)) is not None]
        found[name] = total(known) if known else None
    return found


def _shortened(reason: str) -> str:
    first, *more = reason.split("; ")
    return f"{first} and on {len(more)} more days" if more else first


def _times(amount: Decimal, path: Path) -> Decimal:
    return amount if path.legs == () else _decimal(round(Fraction(amount) * path.factor * _QUANTA))


def _decimal(quanta: int) -> Decimal:
    return Decimal(f"{quanta}E-12") if quanta else ZERO
