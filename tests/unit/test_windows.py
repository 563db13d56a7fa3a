"""Time: aware UTC, half-open windows, money days in a reporting zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.windows import QUARTER_HOUR, Period, Window, epoch_ms, floor_time, from_epoch_ms, period_window, quarter_hour

T = datetime(2026, 11, 30, 12, 7, tzinfo=UTC)
HOUR = timedelta(hours=1)
instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("at", "zone", "period", "start", "hours"),
    [
        ("2026-07-31T14:59:00+00:00", "Asia/Tokyo", "day", "2026-07-30T15:00:00+00:00", 24),
        ("2026-07-31T15:01:00+00:00", "Asia/Tokyo", "day", "2026-07-31T15:00:00+00:00", 24),
        ("2026-10-25T12:00:00+00:00", "Europe/Berlin", "day", "2026-10-24T22:00:00+00:00", 25),
        ("2026-03-29T12:00:00+00:00", "Europe/Berlin", "day", "2026-03-28T23:00:00+00:00", 23),
        ("2025-07-31T16:30:00+00:00", "Asia/Shanghai", "day", "2025-07-31T16:00:00+00:00", 24),
        ("2026-11-29T23:59:59+00:00", "UTC", "week", "2026-11-23T00:00:00+00:00", 168),
        ("2026-12-31T23:00:00+00:00", "UTC", "month", "2026-12-01T00:00:00+00:00", 744),
        ("2026-10-15T00:00:00+00:00", "Europe/Berlin", "month", "2026-09-30T22:00:00+00:00", 745),
    ],
)
def test_periods_in_the_reporting_zone(at: str, zone: str, period: Period, start: str, hours: int) -> None:
    window = period_window(period, datetime.fromisoformat(at), zone)
    assert window.start == datetime.fromisoformat(start)
    assert window.duration == hours * HOUR


@given(instants, st.sampled_from(["UTC", "Asia/Kathmandu", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"]))
def test_a_period_holds_its_instant_and_the_next_begins_where_it_ends(at: datetime, zone: str) -> None:
    for period in ("day", "week", "month"):
        window = period_window(period, at, zone)  # type: ignore[arg-type]
        assert window.contains(at)
        assert period_window(period, window.end, zone).start == window.end  # type: ignore[arg-type]


@given(instants)
def test_quarter_hours_tile_the_time(at: datetime) -> None:
    window = quarter_hour(at)
    assert window.contains(at)
    assert quarter_hour(window.end).start == window.end
    assert floor_time(window.start, QUARTER_HOUR) == window.start


@given(st.integers(0, 4_000_000_000_000))
def test_milliseconds_there_and_back(ms: int) -> None:
    assert epoch_ms(from_epoch_ms(ms)) == ms


def test_the_quanta_of_a_window_are_aligned_and_cover_it() -> None:
    quanta = list(Window(T, T + HOUR).quanta())
    assert [q.start.minute for q in quanta] == [0, 15, 30, 45, 0]
    assert quanta[-1].end >= T + HOUR


@pytest.mark.parametrize(("shift", "shared"), [(0, 60), (30, 30), (60, 0), (90, 0), (-30, 30)])
def test_overlap(shift: int, shared: int) -> None:
    moved = T + timedelta(minutes=shift)
    assert Window(T, T + HOUR).overlap(Window(moved, moved + HOUR)) == timedelta(minutes=shared)


def test_other_zones_are_read_as_utc() -> None:
    tokyo = timezone(timedelta(hours=9))
    assert Window(T.astimezone(tokyo), (T + HOUR).astimezone(tokyo)) == Window(T, T + HOUR)


@pytest.mark.parametrize("make", [lambda: Window(datetime(2026, 1, 1), T), lambda: Window(T, T), lambda: Window(T, T - HOUR)])  # noqa: DTZ001
def test_what_is_no_window(make: object) -> None:
    with pytest.raises(BadInput):
        make()  # type: ignore[operator]


def test_an_unknown_zone_says_how_to_write_one() -> None:
    with pytest.raises(BadInput, match="IANA name"):
        period_window("day", T, "Mars/Olympus")
