"""Money that rests on faults: each kind by itself, and all together without counting twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from core.quality import ABOUT, Capacity, Touched, about, money_at_risk, money_of

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
QUARTERS = [("d", NOON + n * timedelta(minutes=15)) for n in range(8)]
CAPACITY = Capacity({quarter: ("USD", Decimal(1)) for quarter in QUARTERS})
FIRST_HOUR = (("d", NOON), "USD")


def test_a_quarter_hour_that_two_kinds_touch_counts_once_in_the_total() -> None:
    gap, reset = Touched(frozenset(QUARTERS[:3])), Touched(frozenset(QUARTERS[2:5]))
    assert (money_of(gap, CAPACITY), money_of(reset, CAPACITY)) == ({"USD": 3}, {"USD": 3})
    assert money_at_risk([gap, reset], CAPACITY) == {"USD": 5}


def test_a_part_counts_only_outside_the_quarter_hours_that_count_whole() -> None:
    bypass = Touched(parts={FIRST_HOUR: Decimal("0.8")})
    assert money_at_risk([bypass], CAPACITY) == {"USD": Decimal("0.8")}
    assert money_at_risk([bypass, Touched(frozenset(QUARTERS[:1]))], CAPACITY) == {"USD": Decimal("1.6")}
    assert money_at_risk([bypass, Touched(frozenset(QUARTERS[:4]))], CAPACITY) == {"USD": 4}


def test_what_has_no_price_adds_nothing_and_currencies_stay_apart() -> None:
    capacity = Capacity({QUARTERS[0]: ("USD", None), QUARTERS[1]: ("CNY", Decimal(7))})
    touched = Touched(frozenset(QUARTERS), {(("other", NOON), "USD"): Decimal(1)})
    assert money_at_risk([touched], capacity) == {"CNY": 7, "USD": 1}
    assert money_at_risk([], capacity) == {}


quarters = st.frozensets(st.sampled_from(QUARTERS))
amounts = st.decimals(0, "0.4", places=3)


@given(st.lists(quarters, max_size=4), amounts, amounts)
def test_the_total_is_never_more_than_the_capacity_nor_less_than_any_kind(
    touched: list[frozenset[tuple[str, datetime]]], bypass: Decimal, estimated: Decimal
) -> None:
    kinds = [Touched(found) for found in touched]
    kinds += [Touched(parts={FIRST_HOUR: bypass * 4}), Touched(parts={FIRST_HOUR: estimated * 4})]
    total = money_at_risk(kinds, CAPACITY).get("USD", Decimal(0))
    assert total <= 8
    assert total <= sum((money_of(kind, CAPACITY).get("USD", Decimal(0)) for kind in kinds), Decimal(0))
    assert all(total >= money_of(kind, CAPACITY).get("USD", Decimal(0)) for kind in kinds[:-2])


def test_every_kind_says_what_to_do_even_one_nobody_listed() -> None:
    for kind in (*ABOUT, "target_down", "something_new"):
        assert about(kind).what_to_do
        assert about(kind).money
    assert about("something_new").title == "Something new"


def test_what_leaves_every_figure_as_it_is_holds_no_money() -> None:
    assert about("unmapped_metrics").sort == "none"
    assert about("metric_vanished").sort == "time"
