"""Forecasts: naive on short history, never worse than the better naive on real load, intervals that hold, totals that add up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.forecast import burstgpt_days, rolling, servegen_hours
from core.budget_forecast import forecast_period, over_plan
from core.budgets import HOUR, Budget
from core.forecast import NAIVE, forecast
from core.money import money
from core.scopes import parse_scope
from core.windows import Window

START = datetime(2026, 11, 1, tzinfo=UTC)


def budget(amount: str = "1000", period: str = "month") -> Budget:
    return Budget(parse_scope("tenant:acme"), period, "UTC", money(amount, "USD"), "usage")  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [1, 2, 7, 18])
def test_short_history_is_the_last_value_without_an_interval(length: int) -> None:
    found = forecast([float(n) for n in range(1, length + 1)], 7, (7,))
    assert (found.method, found.steps, found.low, found.high) == (NAIVE, (float(length),) * 7, None, None)
    assert "past forecasts to judge by" in found.reason


def test_a_season_seen_three_times_is_found() -> None:
    found = forecast([float(10 + (n % 7) ** 2) for n in range(35)], 7, (7,))
    assert found.method == "seasonal naive 7"
    assert found.steps == tuple(float(10 + n**2) for n in range(7))
    assert found.wape == 0


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=80), st.integers(1, 14))
def test_totals_are_sums_and_intervals_hold_them(series: list[float], horizon: int) -> None:
    found = forecast(series, horizon, (7,))
    assert len(found.steps) == horizon
    assert found.total == pytest.approx(sum(found.steps))
    if found.low is not None and found.high is not None:
        assert 0 <= found.low <= found.total <= found.high


def at(days: float) -> datetime:
    return START + timedelta(days=days)


def hours_at(rate: str, days: int, before: int = 30) -> tuple[dict[datetime, Decimal], Window]:
    """``rate`` an hour, from ``before`` days ahead of the month to its day ``days``."""
    seen = Window(at(-before), at(days))
    return {w.start: Decimal(rate) for w in seen.quanta(HOUR)}, seen


@pytest.mark.parametrize(
    ("rate", "days", "total", "runs_out"),
    [("1", 10, "720", None), ("2", 10, "1440", 20.8333), ("5", 10, "3600", 10), ("0", 10, "0", None)],
)
def test_a_steady_month_ends_where_its_speed_leads(rate: str, days: int, total: str, runs_out: float | None) -> None:
    costs, seen = hours_at(rate, days)
    found = forecast_period(costs, seen, budget(), at(days))
    assert found is not None
    assert found.total == Decimal(total)
    assert (found.exhausted_at is None) == (runs_out is None)
    if runs_out is not None and found.exhausted_at is not None:
        assert abs(found.exhausted_at - at(runs_out)) < HOUR
    assert bool(over_plan(found, budget())) == (Decimal(total) > 1000)


def test_a_day_that_has_begun_counts_by_what_is_left_of_it() -> None:
    costs, _ = hours_at("1", 10)
    seen = Window(at(-30), at(9.5))
    found = forecast_period({h: c for h, c in costs.items() if h < seen.end}, seen, budget(), seen.end)
    assert found is not None
    assert found.total == 720


@pytest.mark.parametrize("period", ["day", "week", "month", "quarter", "year"])
def test_every_period_has_a_total_and_a_steady_one_no_width(period: str) -> None:
    costs, seen = hours_at("1", 10, before=60)
    made = budget(period=period)
    found = forecast_period(costs, seen, made, at(10))
    assert found is not None
    seen_hours = (seen.end - max(made.window(at(10)).start, seen.start)) // HOUR
    assert found.total == Decimal(seen_hours + (made.window(at(10)).end - seen.end) // HOUR)
    assert found.low in (None, found.total)


def test_nothing_is_said_without_a_whole_step_or_of_a_period_that_is_over() -> None:
    costs, seen = hours_at("1", 10)
    assert forecast_period(costs, Window(at(9.7), at(9.9)), budget(), at(9.9)) is None
    assert forecast_period(costs, seen, budget(), at(40)) is None


@pytest.mark.realdata
@pytest.mark.parametrize("step", [24, 6])
def test_servegen_a_day_ahead(realdata: Path, step: int) -> None:
    found = rolling(servegen_hours(realdata), 24, (24, 168), 24 if step == 24 else 96, step)
    assert found.chosen <= found.better_naive
    assert 0.7 <= found.held <= 0.9


@pytest.mark.realdata
def test_burstgpt_a_week_ahead(realdata: Path) -> None:
    found = rolling(burstgpt_days(realdata), 7, (7,), 14, 1)
    assert found.chosen <= found.better_naive
    assert 0.7 <= found.held <= 0.9
