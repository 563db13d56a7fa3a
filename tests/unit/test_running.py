"""Running cost: frozen unit rates times growing work; the order of sources before anything closed."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from core.allocate import Weights, Work, list_weights
from core.running import QUARTER_HOUR_US, RunningUnits, first_units, units_from_text

counts = st.integers(0, 10**7)
works = st.builds(Work, counts, counts, counts, counts, st.integers(0, 10**12))
decimals = st.decimals(min_value=0, max_value=1000, places=12)
weights = st.builds(Weights, st.just("fit"), decimals, decimals, decimals, decimals)
units = st.builds(RunningUnits, st.just("USD"), decimals, decimals, weights, st.none() | decimals, st.just("test"))


@given(units, works, works, st.integers(0, 10**9), st.integers(0, 10**9))
def test_more_work_or_more_time_never_costs_less(rates: RunningUnits, done: Work, more: Work, at: int, later: int) -> None:
    grown, after = done + more, at + later
    assert rates.usage(grown, after) >= rates.usage(done, at)
    assert rates.allocated(grown, after) >= rates.allocated(done, at) >= rates.usage(done, at)


@given(units)
def test_unit_rates_come_back_from_text_as_they_were(rates: RunningUnits) -> None:
    back = units_from_text(rates.as_text(), "USD", "test")
    work = Work(3, 1000, 200, 70, 10**6)
    assert (back.usage(work, 10**8), back.allocated(work, 10**8)) == (rates.usage(work, 10**8), rates.allocated(work, 10**8))
    assert back.as_text() == rates.as_text()


def test_a_nearly_idle_source_window_cannot_price_a_busy_one_beyond_its_capacity() -> None:
    rates = RunningUnits("USD", Decimal("0.000001"), Decimal(5), list_weights(), Decimal("0.2515"), "test")
    assert rates.allocated(Work(1, 1000, 0, 0), 450_000_000) == Decimal("0.12575")


def test_on_the_usage_basis_as_well_open_work_costs_no_more_than_the_capacity_elapsed() -> None:
    rates = RunningUnits("USD", Decimal("0.000156"), Decimal("0.001"), list_weights(), Decimal("0.2515"), "one small request")
    assert rates.usage(Work(2, 18, 0, 1_600), 60_000_000) == Decimal("0.016766666667")
    assert rates.usage(Work(1, 0, 0, 1), 60_000_000) == Decimal("0.000312")


def test_busy_engine_time_at_the_rate_card_over_the_work_done_in_it() -> None:
    rates = first_units("USD", Decimal("0.9"), 1, 1, list_weights(), 90_000_000, Work(1, 1_000, 0, 1_000), "engine")
    assert rates.usage(Work(1, 1_000, 0, 1_000), QUARTER_HOUR_US) == Decimal("0.09")


def test_with_nothing_measured_the_assumed_throughput_is_named() -> None:
    rates = first_units("USD", Decimal("1.8"), 1, 1, list_weights(), 0, Work(), "engine")
    assert rates.source == "rate card x assumed throughput"
    assert rates.usage(Work(1, 2_000, 0, 0), QUARTER_HOUR_US) == Decimal("0.002")
