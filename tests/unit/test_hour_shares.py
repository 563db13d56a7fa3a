"""A charge over its hours: even by time, exact, and the first hour keeps what is finer than the quantum."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.hour_shares import hour_shares
from core.money import QUANTUM, total
from core.windows import Window

T0 = datetime(2026, 7, 1, tzinfo=UTC)


def window(start_minutes: int, minutes: int) -> Window:
    start = T0 + timedelta(minutes=start_minutes)
    return Window(start, start + timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("whole", "interval", "expected"),
    [
        ("24.00", window(0, 60), ["24.00"]),
        ("24.00", window(20, 30), ["24.00"]),
        ("24.00", window(0, 24 * 60), ["1.000000000000"] * 24),
        ("3", window(30, 90), ["1.000000000000", "2.000000000000"]),
        ("1", window(0, 180), ["0.333333333333", "0.333333333333", "0.333333333334"]),
        ("-1", window(0, 180), ["-0.333333333333", "-0.333333333333", "-0.333333333334"]),
        ("0.00000000000012345", window(0, 120), ["1.2345E-13", "0E-12"]),
        ("0", window(0, 120), ["0", "0"]),
    ],
)
def test_even_by_time(whole: str, interval: Window, expected: list[str]) -> None:
    assert list(hour_shares(Decimal(whole), interval).values()) == [Decimal(text) for text in expected]


@given(
    whole=st.decimals(-(10**9), 10**9, places=17),
    start=st.integers(0, 10**7),
    long=st.integers(1, 5 * 10**11),
)
def test_parts_add_up_and_are_even(whole: Decimal, start: int, long: int) -> None:
    begin = T0 + timedelta(microseconds=start)
    interval = Window(begin, begin + timedelta(microseconds=long))
    shares = hour_shares(whole, interval)
    assert total(shares.values()) == whole
    assert list(shares) == [hour.start for hour in interval.quanta(timedelta(hours=1))]
    inner = [share for hour, share in shares.items() if interval.start <= hour and hour + timedelta(hours=1) <= interval.end]
    assert not inner or max(inner) - min(inner) <= 2 * QUANTUM
