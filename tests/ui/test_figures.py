"""Numbers and ranges as people read them: rounding that never misleads, unknown that stays unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.windows import Window
from ui.view_models import ranges
from ui.view_models.figures import UNKNOWN, age, change, column_places, count, money, percent, stamp
from ui.view_models.tables import numbers

NOW = datetime(2026, 11, 18, 12, 7, 30, tzinfo=UTC)
AMOUNTS = st.decimals(min_value="-1e15", max_value="1e15", places=12, allow_nan=False)


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        (None, "USD", UNKNOWN),
        ("0", "USD", "0.00 USD"),
        ("1234567.891", "CNY", "1,234,567.89 CNY"),
        ("1", None, "1.00"),
        ("0.5", "USD", "0.5000 USD"),
        ("0.000012345678", "USD", "0.00001235 USD"),
        ("0.000000000001", "USD", "0.000000000001 USD"),
        ("-3.456", "USD", "-3.46 USD"),
        ("99999999999999999999.999999999999", "USD", "100,000,000,000,000,000,000.00 USD"),
    ],
)
def test_money_reads(amount: str | None, currency: str | None, shown: str) -> None:
    assert money(amount, currency) == shown


@given(AMOUNTS)
def test_money_never_lies_by_more_than_its_rounding(amount: Decimal) -> None:
    shown = Decimal(money(f"{amount:f}", None).replace(",", ""))
    allowed = Decimal("0.005") if abs(amount) >= 1 else max(abs(amount) * Decimal("0.0005"), Decimal("5e-13"))
    assert abs(shown - amount) <= allowed
    assert (shown == 0) == (amount == 0)


@given(st.decimals(min_value=0, max_value=50, places=9, allow_nan=False))
def test_percent_never_lies_and_something_never_reads_as_nothing(share: Decimal) -> None:
    shown = percent(f"{share:f}")
    if shown == "under 0.1 %":
        assert 0 < share * 100 <= Decimal("0.05")
    else:
        assert abs(Decimal(shown.removesuffix(" %").replace(",", "")) - share * 100) <= Decimal("0.05")
        assert not (share > 0 and shown == "0.0 %")


@pytest.mark.parametrize(("share", "shown"), [(None, UNKNOWN), ("0", "0.0 %"), (0.9834, "98.3 %"), ("12.5", "1,250.0 %")])
def test_percent_reads(share: Any, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (999_999, "999,999"), (1_000_000, "1.00 M"), (999_999_999, "1,000.00 M"), (12_345_678_901, "12.35 B")],
)
def test_counts_read(number: int, shown: str) -> None:
    assert count(number) == shown


@pytest.mark.parametrize(
    ("now", "before", "shown"),
    [
        ("110", "100", "+10.0 %"),
        ("90", "100", "-10.0 %"),
        ("1", "0", None),
        (None, "1", None),
        ("1", None, None),
        ("5", "5", "+0.0 %"),
    ],
)
def test_change_is_undefined_without_both_sides(now: str | None, before: str | None, shown: str | None) -> None:
    assert change(now, before) == shown


@given(st.lists(st.none() | st.decimals(min_value="0.000001", max_value="1000", places=9, allow_nan=False), min_size=1))
def test_a_column_shows_one_number_of_decimals_and_keeps_unknown(values: list[Decimal | None]) -> None:
    column, cells = numbers("Cost", [None if v is None else f"{v:f}" for v in values])
    assert [cell is None for cell in cells] == [value is None for value in values]
    assert {-cell.as_tuple().exponent for cell in cells if cell is not None} <= {column.places}  # type: ignore[operator]
    assert column.places == column_places(values)


@pytest.mark.parametrize(("seconds", "shown"), [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")])
def test_age_in_the_largest_useful_unit(seconds: int, shown: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == shown


def test_times_are_utc_whatever_zone_they_came_in() -> None:
    assert stamp("2026-11-18T08:00:00+08:00") == "2026-11-18 00:00"
    assert stamp(None) == ""


WRONG_RANGES = [
    pytest.param("yesterday", "2026-11-18", "From", "is not a time", id="no time"),
    pytest.param("2026-11-01", "", "To", "is not a time", id="empty"),
    pytest.param("2026-11-02", "2026-11-02", "To", "later than From", id="empty window"),
    pytest.param("2026-11-03", "2026-11-02", "To", "later than From", id="backwards"),
    pytest.param("2026-12-01", "2026-12-02", "From", "in the future", id="future"),
    pytest.param("2002-01-01", "2026-11-01", "From", "ten years", id="too long"),
    pytest.param("0001-01-01", "2026-11-01", "From", "outside the years", id="absurd"),
    pytest.param("2026-11-01 00:00:30", "2026-11-02", "From", "whole minute", id="cuts a minute"),
]


@pytest.mark.parametrize(("start", "end", "field", "says"), WRONG_RANGES)
def test_a_wrong_range_names_the_box(start: str, end: str, field: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        ranges.typed(start, end, NOW)
    assert caught.value.field == field


def test_a_typed_range_is_utc_unless_it_says_otherwise() -> None:
    window = ranges.typed("2026-11-01", "2026-11-02T08:00+08:00", NOW)
    assert ranges.params(window) == {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}
    assert ranges.params(None) == {}


@pytest.mark.parametrize("choice", list(ranges.SPANS))
def test_named_ranges_end_with_the_running_minute_and_compare_with_as_much_before(choice: str) -> None:
    window = ranges.last(choice, NOW)
    assert window.end == datetime(2026, 11, 18, 12, 8, tzinfo=UTC)
    assert window.duration == ranges.SPANS[choice]
    assert ranges.before(window) == Window(window.start - window.duration, window.start)
    assert ranges.elapsed(window, NOW) == window


def test_a_running_month_is_compared_up_to_now() -> None:
    month = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    assert ranges.elapsed(month, NOW).end == datetime(2026, 11, 18, 12, 8, tzinfo=UTC)
