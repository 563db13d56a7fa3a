"""Whether an engine's GPU memory leaks: growth of what tensors use, between times of equal load.

More requests hold more memory, so memory is compared only between two windows of one process whose load was the same: mean
requests running and tokens a second each differ by at most ``BAND`` of the larger. Each such pair has a slope; the growth is
their median, so that a single spike moves nothing. A window with a restart ends what may be compared and is left out itself:
a process that just began is still taking its memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations

from core.money import CONTEXT
from core.windows import Window

BAND = Fraction(1, 10)
LEAST_WINDOWS = 6
"""Fewer windows with a partner at equal load prove nothing."""
MOST_WINDOWS = 40
STEPS = (timedelta(minutes=15), timedelta(hours=1), timedelta(hours=6), timedelta(days=1), timedelta(days=7))
HOUR_US = 3_600_000_000
PLACES = Decimal("1e-6")


@dataclass(frozen=True, slots=True)
class MemoryWindow:
    """One window of one scrape target, its engines added up; measures as in ``core.engine_spread``. ``tokens``: prompt tokens
    computed (else all) and generated."""

    at: datetime
    observed_us: int
    running_us: int
    tokens: int
    seen_us: int
    allocated_mib_us: int
    resets: int


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """``mib_per_hour``: median slope; ``windows``: those with a partner at equal load; ``hours``: from first to last."""

    mib_per_hour: Decimal
    windows: int
    hours: Decimal


def window_step(window: Window) -> timedelta:
    """How long the compared windows are: the shortest step that cuts the period into at most ``MOST_WINDOWS``."""
    return next((step for step in STEPS if window.duration <= MOST_WINDOWS * step), STEPS[-1])


def memory_growth(windows: Sequence[MemoryWindow]) -> MemoryGrowth | None:
    """The growth of one target over windows of one length. None: too few windows at equal load to tell."""
    slopes: list[Fraction] = []
    used: set[datetime] = set()
    for stretch in _stretches(sorted(windows, key=lambda window: window.at)):
        for first, last in combinations(stretch, 2):
            if is_equal_load(first, last):
                slopes.append((_allocated(last) - _allocated(first)) * HOUR_US / _us(last.at - first.at))
                used |= {first.at, last.at}
    if len(used) < LEAST_WINDOWS:
        return None
    with localcontext(CONTEXT):
        return MemoryGrowth(_decimal(_median(slopes)), len(used), _decimal(Fraction(_us(max(used) - min(used)), HOUR_US)))


def fastest_growth(targets: Iterable[Sequence[MemoryWindow]]) -> MemoryGrowth | None:
    """That of the target whose memory grows fastest: one leaking engine must not hide behind its neighbours."""
    found = [growth for windows in targets if (growth := memory_growth(windows)) is not None]
    return max(found, key=lambda growth: growth.mib_per_hour, default=None)


def is_equal_load(a: MemoryWindow, b: MemoryWindow) -> bool:
    """Requests running and tokens a second, each within ``BAND`` of the larger; two idle windows are equal."""
    return all(
        abs(first - last) <= BAND * max(first, last)
        for first, last in ((_rate(a.running_us, a), _rate(b.running_us, b)), (_rate(a.tokens, a), _rate(b.tokens, b)))
    )


def _stretches(windows: Iterable[MemoryWindow]) -> Iterator[list[MemoryWindow]]:
    """Windows of one process with memory and load known."""
    stretch: defaultdict[int, list[MemoryWindow]] = defaultdict(list)
    process = 0
    for window in windows:
        process += window.resets
        if not window.resets and window.seen_us and window.observed_us:
            stretch[process].append(window)
    yield from stretch.values()


def _rate(amount: int, window: MemoryWindow) -> Fraction:
    return Fraction(amount, window.observed_us)


def _allocated(window: MemoryWindow) -> Fraction:
    return Fraction(window.allocated_mib_us, window.seen_us)


def _us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def _median(slopes: Sequence[Fraction]) -> Fraction:
    ranked, middle = sorted(slopes), len(slopes) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def _decimal(value: Fraction) -> Decimal:
    return (Decimal(value.numerator) / value.denominator).quantize(PLACES)
