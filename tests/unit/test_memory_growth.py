"""Growth of GPU memory: compared between windows of equal load alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.memory_growth import LEAST_WINDOWS, MemoryWindow, fastest_growth, is_equal_load, memory_growth, window_step
from core.windows import Window

T0 = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOUR_US = 3_600_000_000


def window(hour: int, mib: int, running: float = 4, tokens: int = 1000, resets: int = 0, seen: bool = True) -> MemoryWindow:
    seen_us = HOUR_US if seen else 0
    return MemoryWindow(T0 + hour * HOUR, HOUR_US, round(running * HOUR_US), tokens, seen_us, mib * seen_us, resets)


RISING = [window(hour, 1000 + 50 * hour) for hour in range(8)]


@pytest.mark.parametrize(
    ("case", "windows", "growth"),
    [
        ("50 MiB an hour at one load", RISING, "50"),
        ("steady memory", [window(hour, 900) for hour in range(8)], "0"),
        ("memory given back", [window(hour, 900 - 10 * hour) for hour in range(8)], "-10"),
        ("more memory by more load is no growth", [window(h, 900 + 300 * (h % 2), 4 + 4 * (h % 2)) for h in range(12)], "0"),
        ("an idle engine that grows", [window(hour, 100 + hour, 0, 0) for hour in range(8)], "1"),
        ("one spike moves no median", [*RISING[:4], window(4, 90_000), *RISING[5:]], "50"),
        ("the order of the rows means nothing", RISING[::-1], "50"),
        ("windows without memory are left out", [*RISING, window(8, 0, seen=False)], "50"),
        ("load that only ever rises compares nothing", [window(hour, 1000 + 50 * hour, 2**hour) for hour in range(8)], None),
        ("too few windows", RISING[: LEAST_WINDOWS - 1], None),
        ("nothing", [], None),
    ],
)
def test_growth_is_the_median_slope_at_equal_load(case: str, windows: list[MemoryWindow], growth: str | None) -> None:
    found = memory_growth(windows)
    assert (None if found is None else found.mib_per_hour) == (None if growth is None else Decimal(growth)), case


def test_processes_are_never_compared_with_each_other() -> None:
    """A restart gives all memory back: between processes there is a fall, within them a rise."""
    one = [window(hour, 1000 + 50 * hour) for hour in range(5)]
    other = [window(6 + hour, 300 + 50 * hour) for hour in range(5)]
    found = memory_growth([*one, window(5, 700, resets=1), *other])
    assert found is not None
    assert (found.mib_per_hour, found.windows, found.hours) == (50, 10, 10)


@pytest.mark.parametrize(
    ("running", "tokens", "equal"),
    [(4.4, 1000, True), (3.6, 1000, True), (4.5, 1000, False), (4, 1111, True), (4, 1112, False), (4, 0, False)],
)
def test_equal_load_is_both_numbers_within_a_tenth_of_the_larger(running: float, tokens: int, equal: bool) -> None:
    assert is_equal_load(window(0, 1), window(1, 1, running, tokens)) is equal
    assert is_equal_load(window(1, 1, running, tokens), window(0, 1)) is equal


def test_the_fastest_growing_engine_is_told() -> None:
    found = fastest_growth([[window(hour, 5) for hour in range(8)], RISING, []])
    assert found is not None
    assert found.mib_per_hour == 50
    assert fastest_growth([[], RISING[:2]]) is None


@given(st.integers(1, 24 * 366))
def test_a_period_is_cut_into_few_windows(hours: int) -> None:
    period = Window(T0, T0 + hours * HOUR)
    assert period.duration / window_step(period) <= max(40, 366 / 7)


@given(st.lists(st.integers(0, 10**6), min_size=LEAST_WINDOWS, max_size=12), st.integers(0, 10**6))
def test_memory_held_throughout_changes_no_growth(mib: list[int], more: int) -> None:
    plain, higher = ([window(hour, value + add) for hour, value in enumerate(mib)] for add in (0, more))
    assert memory_growth(plain) == memory_growth(higher)
