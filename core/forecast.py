"""Forecasts of a series in equal steps: naive by default, another method only where it did better on the series' own past.

Rolling origin: every method forecasts from each past origin only what it could have known there; the errors choose the method
and, by their conformal rank, give the interval of the sum. Short history: the last value, and no interval where fewer than
``ORIGINS_NEEDED`` origins were seen. Floats: estimates, never ledger money. Sources of the choice: ADR 0029.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

Series = Sequence[float]
Method = Callable[[Series, int], list[float]]
NAIVE = "naive"
SEASONS_NEEDED = 3
"""A season seen less often is a coincidence: its method is not chosen, it only stands in the middle of others."""
ORIGINS_NEEDED = 6
"""Fewer past forecasts choose nothing and calibrate nothing."""
MOST_ORIGINS = 40
SMOOTHING = 0.3
COVERAGE = 0.8
RANK = 0.85
"""Above the coverage: load drifts between the past origins and now. At 0.80 the interval held 57 to 68 % of ServeGen's days."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """``steps`` ahead and their ``total`` with its interval at ``COVERAGE``; ``low``/``high`` None: too little history, see
    ``reason``. ``wape``: the method's error over ``origins`` past forecasts (sum of errors over sum of values), None without."""

    method: str
    steps: tuple[float, ...]
    total: float
    low: float | None
    high: float | None
    origins: int
    wape: float | None
    reason: str = ""


def naive(series: Series, horizon: int) -> list[float]:
    return [series[-1]] * horizon


def seasonal_naive(season: int) -> Method:
    """The value one season ago; the last value where there is no whole season yet."""

    def method(series: Series, horizon: int) -> list[float]:
        if len(series) < season:
            return naive(series, horizon)
        return [series[len(series) - season + n % season] for n in range(horizon)]

    return method


def smoothed(series: Series, horizon: int) -> list[float]:
    """Simple exponential smoothing: a level that a single odd step moves by a third only."""
    level = series[0]
    for value in series[1:]:
        level += SMOOTHING * (value - level)
    return [level] * horizon


def methods(seasons: Sequence[int]) -> dict[str, Method]:
    """By name; naives first. ``middle`` is the median of all others, step by step."""
    found: dict[str, Method] = {NAIVE: naive}
    found |= {f"seasonal naive {season}": seasonal_naive(season) for season in seasons}
    found["smoothed level"] = smoothed
    parts = tuple(found.values())

    def middle(series: Series, horizon: int) -> list[float]:
        return [median(values) for values in zip(*(method(series, horizon) for method in parts), strict=True)]

    return {**found, "middle": middle}


def forecast(series: Series, horizon: int, seasons: Sequence[int]) -> Forecast:
    """``horizon`` steps after ``series`` (values not below zero, at least one). ``seasons``: lengths in steps, such as 24 and 168
    for hours. Origins are a horizon apart at most, nearer where the history is short."""
    known = methods(seasons)
    origins = _origins(len(series), horizon)
    if len(origins) < ORIGINS_NEEDED:
        steps = tuple(naive(series, horizon))
        why = f"{len(origins)} of {ORIGINS_NEEDED} past forecasts to judge by: the last value, without an interval"
        return Forecast(NAIVE, steps, sum(steps), None, None, len(origins), None, why)
    past = {name: [(method(series[:at], horizon), series[at : at + horizon]) for at in origins] for name, method in known.items()}
    errors = {name: wape(pairs) for name, pairs in past.items()}
    young = {f"seasonal naive {season}" for season in seasons if len(series) < SEASONS_NEEDED * season}
    chosen = _choose({name: error for name, error in errors.items() if name not in young})
    steps = tuple(known[chosen](series, horizon))
    low, high = _interval(sum(steps), past.values())
    return Forecast(chosen, steps, sum(steps), low, high, len(origins), errors[chosen])


def wape(pairs: Sequence[tuple[Series, Series]]) -> float | None:
    """Sum of absolute errors over the sum of what came; None where nothing came (it has no percentage then)."""
    came = sum(sum(actual) for _, actual in pairs)
    missed = sum(abs(f - a) for ahead, actual in pairs for f, a in zip(ahead, actual, strict=True))
    return missed / came if came else None


def _choose(errors: Mapping[str, float | None]) -> str:
    known = {name: error for name, error in errors.items() if error is not None}
    return min(known, key=lambda name: known[name], default=NAIVE)


def _origins(length: int, horizon: int) -> range:
    """Newest last; at least one horizon of history before the first."""
    first, last = min(horizon, length), length - horizon
    span = max(last - first, 0)
    step = max(1, min(horizon, ceil(span / MOST_ORIGINS) if span else 1))
    count = min(MOST_ORIGINS, span // step + 1) if last >= first else 0
    return range(last - (count - 1) * step, last + 1, step) if count else range(0)


def _interval(total: float, past: Iterable[Sequence[tuple[Series, Series]]]) -> tuple[float, float]:
    """Split conformal on the absolute errors of the sums, by their rank among n + 1. Of all methods, not of the chosen one alone:
    choosing the one that erred least makes its own errors too small. Never below zero."""
    errors = sorted(abs(sum(came) - sum(ahead)) for pairs in past for ahead, came in pairs)
    reach = errors[min(ceil(RANK * (len(errors) + 1)) - 1, len(errors) - 1)]
    return max(total - reach, 0.0), total + reach
