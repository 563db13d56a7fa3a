"""Detectors: what a metric's own history says is too much, and whether a window is.

A detector learns a ``Baseline`` from a series (a function of the windows with a value alone: order, copies and late rows that
bring the same values change nothing) and judges a window against it. A baseline may be kept and used for later windows. Fewer
than the least number of windows is NO_DATA, never "fine". Between the bound that fires and the bound that clears nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol

import numpy as np

from core.breaker_values import Level
from core.series import HOURS_OF_WEEK, Floats, Seconds, Series, band_of, hour_of_week, hours_of_week

Direction = Literal["high", "low"]
WEEK = timedelta(days=7)
ALL = "all"
MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for normal noise."""
MOST_SCORE = 1e6
NO_VALUE = "no value in this window"


@dataclass(frozen=True, slots=True)
class Bound:
    """``fire``: the value from which it fires; ``clear``: the one from which it is clear again; ``centre``: what is usual. Where
    both are the same value (a metric that never moved), only a value beyond it fires."""

    fire: float
    clear: float
    centre: float
    windows: int = 0
    direction: Direction = "high"

    def score(self, value: float) -> float:
        """1 or more fires, 0 or less is clear; whichever side the bound is on."""
        span = self.fire - self.clear
        if span == 0:
            beyond = value > self.fire if self.direction == "high" else value < self.fire
            return MOST_SCORE if beyond else 0.0
        return max(-MOST_SCORE, min(MOST_SCORE, (value - self.clear) / span))


@dataclass(frozen=True, slots=True)
class Baseline:
    """Bounds by bucket of time (``all``, a band, an hour of the week). No bounds: not known, with ``reason``."""

    bounds: Mapping[str, Bound] = field(default_factory=dict)
    windows: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``score``: 1 or more fires, 0 or less is clear. ``threshold`` and ``usual`` are in the metric's unit."""

    level: Level
    value: float | None = None
    score: float | None = None
    threshold: float | None = None
    usual: float | None = None
    reason: str = ""


class Detector(Protocol):
    """``lookback``: how much history ``fit`` wants. ``recent``: how many windows before the judged one ``judge`` wants."""

    @property
    def lookback(self) -> timedelta: ...
    @property
    def recent(self) -> int: ...
    def fit(self, series: Series) -> Baseline: ...
    def judge(self, baseline: Baseline, recent: Series, at: datetime, value: float | None) -> Verdict: ...


def verdict(bound: Bound | None, value: float | None, reason: str = "") -> Verdict:
    """A value against a bound; NO_DATA with ``reason`` where either is not known."""
    if value is None or math.isnan(value):
        return Verdict("no_data", reason=NO_VALUE)
    if bound is None:
        return Verdict("no_data", value, reason=reason or "no baseline")
    score = bound.score(value)
    level: Level = "firing" if score >= 1 else "clear" if score <= 0 else "between"
    side = "above" if bound.direction == "high" else "below"
    told = f"{value:.6g}; fires {side} {bound.fire:.6g}, clear at {bound.clear:.6g}, usual {bound.centre:.6g}"
    return Verdict(level, value, score, bound.fire, bound.centre, told)


@dataclass(frozen=True, slots=True)
class StaticThreshold:
    """Fires from ``fire`` on and is clear from ``clear`` on; which of them is greater says the direction."""

    fire: float
    clear: float
    lookback: timedelta = timedelta(0)
    recent: int = 0

    def fit(self, series: Series) -> Baseline:
        direction: Direction = "high" if self.fire >= self.clear else "low"
        return Baseline({ALL: Bound(self.fire, self.clear, self.clear, len(series), direction)}, len(series))

    def judge(self, baseline: Baseline, recent: Series, at: datetime, value: float | None) -> Verdict:
        return verdict(baseline.bounds.get(ALL), value)


@dataclass(frozen=True, slots=True)
class OwnPercentile:
    """Fires above ``factor`` x the P``percentile`` of its own windows of ``lookback`` (low: below P / factor).

    Banded: of the windows of the same band (weekday or weekend x 6 h). Tier 1's figures: P90, 1.3, 7 days, 200 windows. Clears
    half-way (``recover``) between the percentile and the threshold. Below ``least`` it never fires (high alone).
    """

    percentile: float = 90.0
    factor: float = 1.3
    lookback: timedelta = WEEK
    banded: bool = True
    min_windows: int = 200
    direction: Direction = "high"
    recover: float = 0.5
    least: float = 0.0
    zone: str = "UTC"
    recent: int = 0

    def fit(self, series: Series) -> Baseline:
        known = series.known()
        if len(known) < self.min_windows:
            return _too_few(len(known), self.min_windows)
        if not self.banded:
            return Baseline({ALL: self._bound(known.values)}, len(known))
        bands = np.array([band_of(h) for h in range(HOURS_OF_WEEK)])[hours_of_week(known.times, self.zone)]
        least = min(self.min_windows, MIN_IN_BUCKET)
        groups = {str(band): known.values[bands == band] for band in np.unique(bands)}
        return Baseline({b: self._bound(values) for b, values in groups.items() if len(values) >= least}, len(known))

    def _bound(self, values: Floats) -> Bound:
        share = self.percentile if self.direction == "high" else 100 - self.percentile
        own = float(np.percentile(values, share))
        fire = max(own * self.factor, self.least) if self.direction == "high" else own / self.factor
        return Bound(fire, own + (fire - own) * self.recover, float(np.median(values)), len(values), self.direction)

    def judge(self, baseline: Baseline, recent: Series, at: datetime, value: float | None) -> Verdict:
        bucket = str(band_of(hour_of_week(at, self.zone))) if self.banded else ALL
        return verdict(baseline.bounds.get(bucket), value, baseline.reason or "too few windows in this band of the week")


MIN_IN_BUCKET = 12
"""An hour of 5-minute windows: below that a bucket's own figures are an accident."""


@dataclass(frozen=True, slots=True)
class HourOfWeekZ:
    """Fires where |value - median| is ``z`` robust deviations: median and MAD of the same hour of the week, where two weeks or
    more were seen; else of the same hour of weekdays or weekend days; else of everything.

    ``floor`` x median is the least deviation: a metric that never moved does not fire at its first stir.
    """

    z: float = 6.0
    lookback: timedelta = 4 * WEEK
    min_windows: int = 200
    floor: float = 0.05
    direction: Direction = "high"
    recover: float = 0.5
    zone: str = "UTC"
    recent: int = 0

    def fit(self, series: Series) -> Baseline:
        known = series.known()
        if len(known) < self.min_windows:
            return _too_few(len(known), self.min_windows)
        hours = hours_of_week(known.times, self.zone)
        weeks = known.times // int(WEEK.total_seconds())
        bounds = {ALL: self._bound(known.values)}
        for name, groups in (("d", (hours >= 120) * 24 + hours % 24), ("h", hours)):
            bounds |= self._buckets(name, groups, known.values, weeks)
        return Baseline(bounds, len(known))

    def _buckets(self, name: str, groups: Seconds, values: Floats, weeks: Seconds) -> dict[str, Bound]:
        order = np.argsort(groups, kind="stable")
        names, starts = np.unique(groups[order], return_index=True)
        found: dict[str, Bound] = {}
        for group, start, end in zip(names, starts, [*starts[1:], len(groups)], strict=True):
            mine = order[start:end]
            seen_twice = name == "d" or weeks[mine].min() < weeks[mine].max()
            if len(mine) >= MIN_IN_BUCKET and seen_twice:
                found[f"{name}{group}"] = self._bound(values[mine])
        return found

    def _bound(self, values: Floats) -> Bound:
        centre = float(np.median(values))
        spread = max(MAD_TO_SIGMA * float(np.median(np.abs(values - centre))), self.floor * abs(centre), 1e-12)
        reach = self.z * spread * (1 if self.direction == "high" else -1)
        return Bound(centre + reach, centre + reach * self.recover, centre, len(values), self.direction)

    def judge(self, baseline: Baseline, recent: Series, at: datetime, value: float | None) -> Verdict:
        hour = hour_of_week(at, self.zone)
        names = (f"h{hour}", f"d{(24 if hour >= 120 else 0) + hour % 24}", ALL)
        bound = next((baseline.bounds[name] for name in names if name in baseline.bounds), None)
        return verdict(bound, value, baseline.reason)


@dataclass(frozen=True, slots=True)
class ConformalResidual:
    """Fires where a value misses its forecast by more than all but ``alpha`` of earlier forecasts did (split conformal, Vovk).

    Forecast: the median of the ``recent`` windows before. Residuals are relative to it where ``relative``. The bound is the
    ⌈(n + 1)(1 - alpha)⌉-th smallest of n residuals x ``margin``; with fewer than 1 / alpha - 1 none is that sure: NO_DATA.
    """

    alpha: float = 0.001
    margin: float = 1.5
    recent: int = 12
    lookback: timedelta = 2 * WEEK
    min_windows: int = 200
    relative: bool = True
    direction: Direction = "high"
    recover: float = 0.5

    def fit(self, series: Series) -> Baseline:
        known = series.known()
        misses = self._misses(known.values)
        needed = max(self.min_windows, math.ceil(1 / self.alpha) - 1)
        if len(misses) < needed:
            return _too_few(len(misses), needed)
        rank = min(math.ceil((len(misses) + 1) * (1 - self.alpha)), len(misses))
        reach = max(float(np.partition(misses, rank - 1)[rank - 1]) * self.margin, 1e-9)
        return Baseline({ALL: Bound(reach, reach * self.recover, 0.0, len(misses), self.direction)}, len(known))

    def _misses(self, values: Floats) -> Floats:
        if len(values) <= self.recent:
            return np.zeros(0)
        views = np.lib.stride_tricks.sliding_window_view(values, self.recent)[:-1]
        return self._miss(values[self.recent :], np.median(views, axis=1))

    def _miss(self, value: Floats, forecast: Floats) -> Floats:
        sign = 1.0 if self.direction == "high" else -1.0
        scale = np.maximum(np.abs(forecast), 1e-12) if self.relative else np.ones_like(forecast)
        return np.asarray(sign * (value - forecast) / scale, dtype=np.float64)

    def judge(self, baseline: Baseline, recent: Series, at: datetime, value: float | None) -> Verdict:
        before = recent.known().last(self.recent).values
        bound = baseline.bounds.get(ALL)
        if bound is None or value is None or math.isnan(value):
            return verdict(bound, value, baseline.reason)
        if len(before) < self.recent:
            return Verdict("no_data", value, reason=f"{len(before)} windows before this one, {self.recent} needed to forecast")
        forecast = float(np.median(before))
        scale = (max(abs(forecast), 1e-12) if self.relative else 1.0) * (1 if self.direction == "high" else -1)
        own = Bound(forecast + bound.fire * scale, forecast + bound.clear * scale, forecast, bound.windows, self.direction)
        return verdict(own, value)


def _too_few(found: int, needed: int) -> Baseline:
    return Baseline({}, found, f"warming up: {found} windows with a value, {needed} needed")
