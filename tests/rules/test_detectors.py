"""Detectors: what fires, what is not known, and that neither order, copies nor incidents move a baseline."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.detect import (
    Bound,
    ConformalResidual,
    Detector,
    HourOfWeekZ,
    OwnPercentile,
    StaticThreshold,
)
from core.series import Point, band_of, hour_of_week, series_of
from core.windows import Window

MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=5)


def week(value: float = 10.0, noise: float = 1.0, days: int = 7, seed: int = 1) -> list[Point]:
    rng = random.Random(seed)
    return [Point(MONDAY + n * STEP, value + rng.uniform(-noise, noise)) for n in range(288 * days)]


def judged(detector: Detector, points: list[Point], value: float | None, at: datetime | None = None) -> str:
    series = series_of(points)
    at = at or points[-1].at + STEP
    return detector.judge(detector.fit(series), series.before(at), at, value).level


DETECTORS: dict[str, Detector] = {
    "percentile": OwnPercentile(),
    "plain percentile": OwnPercentile(banded=False),
    "hour of week": HourOfWeekZ(),
    "forecast": ConformalResidual(alpha=0.002),
}


@pytest.mark.parametrize("detector", DETECTORS.values(), ids=DETECTORS)
@pytest.mark.parametrize(("value", "level"), [(10.0, "clear"), (40.0, "firing"), (None, "no_data"), (float("nan"), "no_data")])
def test_a_value_far_above_its_own_history_fires(detector: Detector, value: float | None, level: str) -> None:
    assert judged(detector, week(), value) == level


@pytest.mark.parametrize("detector", DETECTORS.values(), ids=DETECTORS)
def test_too_short_a_history_is_no_data_and_says_how_much_is_missing(detector: Detector) -> None:
    baseline = detector.fit(series_of(week()[:150]))
    assert judged(detector, week()[:150], 40.0) == "no_data"
    assert "needed" in baseline.reason


@pytest.mark.parametrize(
    ("value", "level"),
    [(0.81, "firing"), (0.8, "firing"), (0.75, "between"), (0.7, "clear"), (0.1, "clear"), (None, "no_data")],
)
def test_a_static_threshold_has_a_bound_to_fire_and_one_to_clear(value: float | None, level: str) -> None:
    assert judged(StaticThreshold(0.8, 0.7), week()[:1], value) == level


@pytest.mark.parametrize(("value", "level"), [(0.69, "firing"), (0.8, "between"), (0.9, "clear")])
def test_a_threshold_that_fires_below_is_written_the_other_way_round(value: float, level: str) -> None:
    assert judged(StaticThreshold(0.7, 0.85), week()[:1], value) == level


def test_tier_1_fires_at_its_own_p90_times_1_3_and_clears_half_way() -> None:
    points = [Point(MONDAY + n * STEP, float(n % 10 + 1)) for n in range(288 * 5)]
    bound = OwnPercentile(banded=False).fit(series_of(points)).bounds["all"]
    assert (bound.fire, bound.clear) == (pytest.approx(9.1 * 1.3), pytest.approx(9.1 * 1.15))


@pytest.mark.parametrize(("direction", "value", "fires"), [("low", 2.0, True), ("low", 30.0, False), ("high", 2.0, False)])
def test_a_direction_is_one_way_alone(direction: str, value: float, fires: bool) -> None:
    for detector in (OwnPercentile(direction=direction, factor=2), HourOfWeekZ(direction=direction)):  # type: ignore[arg-type]
        assert (judged(detector, week(), value) == "firing") == fires


def test_a_metric_that_never_moved_fires_beyond_it_and_not_at_it() -> None:
    zeros = [Point(p.at, 0.0) for p in week()]
    assert judged(OwnPercentile(banded=False), zeros, 0.0) == "clear"
    assert judged(OwnPercentile(banded=False), zeros, 5.0) == "firing"
    assert judged(OwnPercentile(banded=False, direction="low"), zeros, 5.0) == "clear"
    assert Bound(0.0, 0.0, 0.0).score(0.0) == 0.0


def test_a_quiet_weekend_is_judged_by_weekends() -> None:
    """Weekends are a tenth of weekdays: ten is quiet on Monday and far too much on Saturday."""
    points = [Point(p.at, p.value / 10 if p.at.weekday() >= 5 else p.value) for p in week(days=14) if p.value]
    saturday, monday = MONDAY + timedelta(days=19), MONDAY + timedelta(days=14)
    for detector in (OwnPercentile(), HourOfWeekZ()):
        assert judged(detector, points, 10.0, saturday) == "firing"
        assert judged(detector, points, 10.0, monday) == "clear"
        assert judged(detector, points, 1.0, monday) == "clear"


def test_windows_of_an_incident_are_in_no_baseline() -> None:
    incident = Window(MONDAY + timedelta(days=2), MONDAY + timedelta(days=5))
    burst = [Point(p.at, 500.0) if incident.contains(p.at) else p for p in week()]
    for detector in DETECTORS.values():
        taken = detector.fit(series_of(burst).without([incident]))
        assert detector.judge(taken, series_of(burst[:200]), MONDAY + timedelta(days=8), 40.0).level == "firing"


def test_windows_with_few_tokens_are_not_known() -> None:
    points = [Point(MONDAY, 9.0, 10), Point(MONDAY + STEP, 9.0, 1000), Point(MONDAY + 2 * STEP, 9.0)]
    assert series_of(points, min_tokens=100).known().values.tolist() == [9.0, 9.0]


@pytest.mark.parametrize(
    ("at", "zone", "hour"),
    [
        (MONDAY, "UTC", 0),
        (MONDAY + timedelta(days=6, hours=23), "UTC", 167),
        (MONDAY, "Asia/Shanghai", 8),
        (MONDAY, "America/New_York", 163),
    ],
)
def test_hours_of_the_week_are_of_the_reporting_zone(at: datetime, zone: str, hour: int) -> None:
    assert hour_of_week(at, zone) == hour


def test_bands_are_weekdays_and_weekends_by_six_hours() -> None:
    assert [band_of(h) for h in (0, 5, 6, 23, 119, 120, 126, 167)] == [0, 0, 1, 3, 3, 4, 5, 7]


@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 2015), max_size=20))
def test_order_and_copies_change_nothing(rng: random.Random, again: list[int]) -> None:
    points = week()
    shuffled = points + [points[n] for n in again]
    rng.shuffle(shuffled)
    for detector in DETECTORS.values():
        assert detector.fit(series_of(shuffled)) == detector.fit(series_of(points))


@given(st.floats(0.01, 1e6), st.floats(0, 5))
def test_one_price_for_all_windows_moves_no_verdict(price: float, value: float) -> None:
    """A new price scales history and window alike: tier 1 does not see it."""
    plain, priced = week(1.0, 0.3), [Point(p.at, p.value * price) for p in week(1.0, 0.3) if p.value]
    detector = OwnPercentile()
    first = detector.judge(detector.fit(series_of(plain)), series_of([]), MONDAY, value)
    second = detector.judge(detector.fit(series_of(priced)), series_of([]), MONDAY, value * price)
    assert first.score == pytest.approx(second.score, abs=1e-6)
