"""The hour-of-week profile: uniform until two whole weeks exist, steady against odd days, and always summing to one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.budgets import HOUR, expected_share
from core.profile import LEAST_OF_MEAN, WEEKS_KEPT, learn_profile
from core.windows import Window, period_window

MONDAY = datetime(2026, 9, 7, tzinfo=UTC)
WEEK = timedelta(weeks=1)


def weeks_of(n: int, busy: range = range(9, 18), cost: str = "10", start: datetime = MONDAY) -> dict[datetime, Decimal]:
    """A business that spends ``cost`` in each busy hour of working days."""
    hours = (start + k * HOUR for k in range(n * 168))
    return {at: Decimal(cost) for at in hours if at.weekday() < 5 and at.hour in busy}


@pytest.mark.parametrize(("days", "weeks"), [(0.5, 0), (7, 1), (13.9, 1), (14, 2), (30, 4), (100, WEEKS_KEPT)])
def test_every_hour_is_expected_alike_until_two_whole_weeks_exist(days: float, weeks: int) -> None:
    seen = Window(MONDAY, MONDAY + timedelta(days=days))
    learned = learn_profile(weeks_of(15), seen, "UTC")
    assert (learned.weeks, learned.profile is None) == (weeks, weeks < 2)
    assert ("of 2 whole weeks" in learned.reason) == (weeks < 2)


def test_a_working_week_is_expected_on_working_hours() -> None:
    learned = learn_profile(weeks_of(4), Window(MONDAY, MONDAY + 4 * WEEK), "UTC")
    week = Window(MONDAY + 4 * WEEK, MONDAY + 5 * WEEK)
    friday_evening = expected_share(week, week.start + timedelta(days=4, hours=20), "UTC", learned.profile)
    assert friday_evening > Decimal("0.9")
    assert expected_share(week, week.start + timedelta(hours=9), "UTC", learned.profile) < Decimal("0.03")


def test_one_odd_day_in_three_weeks_moves_nothing() -> None:
    calm, odd = weeks_of(3), weeks_of(3)
    odd |= {MONDAY + timedelta(days=9, hours=h): Decimal(5000) for h in range(24)}
    seen = Window(MONDAY, MONDAY + 3 * WEEK)
    assert learn_profile(odd, seen, "UTC") == learn_profile(calm, seen, "UTC")


def test_no_hour_is_expected_to_be_free_and_nothing_at_all_is_uniform() -> None:
    seen = Window(MONDAY, MONDAY + 3 * WEEK)
    learned = learn_profile(weeks_of(3), seen, "UTC")
    assert learned.profile is not None
    assert min(learned.profile.weights) == LEAST_OF_MEAN
    assert learn_profile({}, seen, "UTC").reason == "most hours cost nothing: every hour is expected alike"


def test_hours_are_those_of_the_zone() -> None:
    seen = Window(MONDAY, MONDAY + 2 * WEEK)
    learned = learn_profile(weeks_of(2, range(1, 2)), seen, "Asia/Shanghai")
    assert learned.profile is not None
    assert max(range(168), key=lambda n: learned.profile.weights[n] if learned.profile else 0) % 24 == 9


@settings(deadline=None, max_examples=30)
@given(
    costs=st.lists(st.integers(0, 1000), min_size=336, max_size=336),
    period=st.sampled_from(["day", "week", "month", "quarter"]),
    day=st.dates(datetime(2026, 1, 1).date(), datetime(2026, 12, 31).date()),  # noqa: DTZ001
    cuts=st.lists(st.integers(0, 10**6), max_size=5),
)
def test_the_parts_of_a_period_add_up_to_one_exactly(costs: list[int], period: str, day: object, cuts: list[int]) -> None:
    learned = learn_profile(
        {MONDAY + n * HOUR: Decimal(c) for n, c in enumerate(costs)}, Window(MONDAY, MONDAY + 2 * WEEK), "UTC"
    )
    at = datetime.fromisoformat(f"{day}T12:00:00+00:00")
    window = period_window(period, at, "Europe/Berlin")  # type: ignore[arg-type]
    points = sorted({window.start, window.end, *(window.start + (window.end - window.start) * c / 10**6 for c in cuts)})
    shares = [expected_share(window, point, "Europe/Berlin", learned.profile) for point in points]
    assert (shares[0], shares[-1]) == (0, 1)
    assert shares == sorted(shares)
