"""Do requests still fall into the classes? A burst of requests unlike all of them, and a slow shift of the mix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from math import log

from core.workload import NEW, UNSCORED, WorkloadClass
from core.workload_columns import Ints, placed

LOOK_BACK = timedelta(minutes=5)
LEAST_REQUESTS = 8
LEAST_PERCENT = 10
"""A new class: so many requests of the look-back, and at least this share of those scored, are unlike every class."""
BETTER_BY = 0.9
MOST_NEW = 0.02
"""New classes take the place of those in force when requests lie nearer by a tenth, or when more than this share of them lies
beyond every class in force."""
SHIFTED = 0.25
"""Population stability index from which a mix counts as shifted (the customary bound; 0.1 to 0.25 is a small shift)."""


@dataclass(frozen=True, slots=True)
class MinuteCounts:
    """Scored requests of one minute, and those of them in class ``NEW``."""

    minute: datetime
    scored: int
    new: int


@dataclass(frozen=True, slots=True)
class NewClass:
    """A burst of requests unlike every class, seen at ``at``: they began in the minute ``since``."""

    since: datetime
    at: datetime
    requests: int
    scored: int

    @property
    def percent(self) -> Fraction:
        return Fraction(100 * self.requests, self.scored)


@dataclass(frozen=True, slots=True)
class Drift:
    """``index`` is the population stability index of the class mix, None where either side has nothing; ``new_percent`` the share
    of requests unlike every class, None where none was scored."""

    index: float | None
    new_percent: Fraction | None

    @property
    def shifted(self) -> bool:
        return self.index is not None and self.index >= SHIFTED


def new_class(minutes: Sequence[MinuteCounts], at: datetime) -> NewClass | None:
    """The burst in the look-back before ``at`` (minutes that begin in it, in any order), or None."""
    recent = [one for one in minutes if at - LOOK_BACK <= one.minute <= at]
    scored, fresh = sum(one.scored for one in recent), sum(one.new for one in recent)
    if fresh < LEAST_REQUESTS or 100 * fresh < LEAST_PERCENT * scored:
        return None
    return NewClass(min(one.minute for one in recent if one.new), at, fresh, scored)


def drift(trained: Mapping[int, int], now: Mapping[int, int]) -> Drift:
    """Requests by class number when the model was trained against those of now. Unscored requests take no part; a class with none
    counts as half a request, so that the index stays finite."""
    scored = sum(count for number, count in now.items() if number != UNSCORED)
    new_percent = Fraction(100 * now.get(NEW, 0), scored) if scored else None
    numbers = {number for number in (*trained, *now) if number not in (UNSCORED, NEW)}
    before, after = ({n: max(counts.get(n, 0), 0.5) for n in numbers} for counts in (trained, now))
    if not any(trained.get(n) for n in numbers) or not any(now.get(n) for n in numbers):
        return Drift(None, new_percent)
    total_before, total_after = sum(before.values()), sum(after.values())
    shares = ((before[n] / total_before, after[n] / total_after) for n in numbers)
    return Drift(sum((a - b) * log(a / b) for b, a in shares), new_percent)


def why_better(now: Sequence[WorkloadClass], made: Sequence[WorkloadClass], weights: tuple[int, ...], found: Ints) -> str:
    """Why ``made`` should take the place of the classes in force, judged on these shapes; '' when it should not."""
    if not now:
        return "the first classes"
    before, after = placed(now, weights, found), placed(made, weights, found)
    nearer = float(after.distance.mean()), float(before.distance.mean())
    if nearer[0] <= BETTER_BY * nearer[1]:
        return f"requests lie nearer to their class: mean square distance {nearer[0] / max(nearer[1], 1.0):.0%} of what it was"
    beyond = 1.0 - float(before.inside.mean())
    return f"{beyond:.1%} of the requests lie beyond every class in force" if beyond > MOST_NEW else ""
