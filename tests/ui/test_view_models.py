"""What the pages show: rounding that never misleads, unknown that stays unknown, files that hold what the screen holds."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_answers import ledger, overview, unit_costs

from core.errors import BadInput
from core.windows import Window
from ui.view_models import ranges
from ui.view_models.figures import UNKNOWN, age, change, column_places, count, money, percent, rounded, stamp
from ui.view_models.overview import (
    breaker_table,
    budget_table,
    burn_card,
    cost_parts,
    overview_cards,
    overview_unknowns,
    parts_table,
    refusing,
    series_holes,
    spend_points,
)
from ui.view_models.provenance import merged_meta, provenance_line, scope_name
from ui.view_models.tables import Column, Table, as_csv, numbers, table
from ui.view_models.unit_cost import GROUPS, NO_NAME, ordered, reasons_words, unit_cards, unit_points, unit_table, unit_unknowns

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


def test_every_card_says_what_it_rests_on() -> None:
    cards = overview_cards(overview({}, "data", NOW), cost_parts(ledger({}, "data", NOW)["rows"]))
    assert [card.label for card in cards] == ["Spend", "Cost per million tokens", "Idle", "Budget burn", "Coverage", "Requests"]
    assert all(card.note for card in cards)
    assert cards[1].value == "1.14 USD"
    assert cards[1].delta == "-18.9 %"
    assert "USD of the capacity cost" in cards[2].note


@pytest.mark.parametrize("kind", ["empty", "partial"])
def test_unknown_never_becomes_zero_and_has_a_reason(kind: Any) -> None:
    data = overview({}, kind, NOW)
    cards = {card.label: card for card in overview_cards(data, [])}
    for name in ("Spend", "Cost per million tokens", "Idle", "Coverage"):
        assert cards[name].value == UNKNOWN
        assert cards[name].note
        assert cards[name].delta is None
    unknowns = overview_unknowns(data)
    assert all(item.reason and item.advice for item in unknowns)
    assert {"Spend", "Cost per million tokens", "Idle", "Coverage"} <= {item.name for item in unknowns}


def test_a_lower_bound_says_what_is_missing_from_it() -> None:
    data = overview({}, "data", NOW) | {"spend_reason": "lower bound, without bj-1/prod/x: no price"}
    assert overview_cards(data, [])[0].note.startswith("lower bound")


def test_the_parts_add_up_to_the_capacity_cost_exactly() -> None:
    rows = ledger({}, "data", NOW)["rows"]
    parts = cost_parts(rows)
    assert [part.kind for part in parts] == ["served", "wasted", "unattributed", "idle", "starting"]
    assert sum(part.amount for part in parts) == sum(Decimal(row["cost"]) for row in rows)
    shown = parts_table(parts, whole="Capacity cost").rows
    assert shown[-1]["Part"] == "Capacity cost"
    assert shown[-1]["Share"] == "100.0 %"


def test_two_currencies_are_never_added() -> None:
    rows = ledger({}, "data", NOW)["rows"]
    rows += [{**rows[0], "currency": "CNY"}]
    shown = parts_table(cost_parts(rows), whole="Capacity cost").rows
    assert [row["Currency"] for row in shown if row["Part"] == "Capacity cost"] == ["CNY", "USD"]


def test_the_budget_furthest_ahead_of_plan_comes_first() -> None:
    budgets = overview({}, "data", NOW)["budgets"]
    assert burn_card(budgets).value == "82.5 %"
    assert "星辰科技 / 搜索推荐: 412.34 of 500.00 USD" in burn_card(budgets).note
    rows = budget_table(budgets).rows
    assert [row["Pace"] for row in rows] == ["1.30×", "0.81×", "0.02×"]
    assert rows[2]["Spent, %"] == "under 0.1 %"
    assert rows[1]["Amount runs out, UTC"] == "lasts beyond the period at the speed of the last hour"


def test_a_budget_without_a_price_is_unknown_with_the_reason() -> None:
    budgets = overview({}, "partial", NOW)["budgets"]
    assert burn_card(budgets).value == UNKNOWN
    assert {(row["Spent"], row["Pace"], row["Last hour"]) for row in budget_table(budgets).rows} == {(UNKNOWN,) * 3}
    assert "H800 has no rate" in str(budget_table(budgets).rows[0]["Note"])
    assert burn_card([]).value == "no budget"


BREAKERS = [
    pytest.param({}, "refuses requests", id="acting"),
    pytest.param({"refusing": False, "paused_until": "2026-11-18T14:00:00Z"}, "paused until 2026-11-18 14:00 UTC", id="paused"),
    pytest.param({"refusing": False, "held": True}, "held back by the blast limit", id="held"),
    pytest.param({"refusing": False, "enforced": False}, "shadow: decides, does not act", id="shadow"),
    pytest.param({"refusing": False, "phase": "warned", "tier": 1}, "acts", id="warned"),
]


@pytest.mark.parametrize(("changes", "does"), BREAKERS)
def test_a_breaker_says_whether_it_refuses(changes: dict[str, Any], does: str) -> None:
    breakers = [overview({}, "data", NOW)["breakers_not_closed"][0] | changes]
    assert breaker_table(breakers).rows[0]["What it does"] == does
    assert bool(refusing(breakers)) == (does == "refuses requests")


def test_chart_points_keep_holes_and_the_reason() -> None:
    data = overview({}, "data", NOW)
    points = list(spend_points(data))
    assert [n for n, point in enumerate(points) if point["cost"] is None] == [4]
    assert points[4]["kind"] == "unknown"
    assert points[4]["shown"] == UNKNOWN
    assert points[-1]["kind"] == "with a running estimate"
    assert series_holes(data) == ["1 day unknown: no quarter hour of it is closed and priced"]


@pytest.mark.parametrize("by", list(GROUPS))
def test_unit_cost_rows_are_the_apis_numbers_rounded_once(by: str) -> None:
    rows = ordered(unit_costs({"by": by}, "data", NOW)["rows"], by)
    shown = unit_table(rows, by, [])
    for row, cells in zip(rows, shown.rows, strict=True):
        blended = cells["Blended, USD/MTok"]
        assert isinstance(blended, Decimal)
        assert blended == rounded(Decimal(row["blended_per_mtok"]), -blended.as_tuple().exponent)  # type: ignore[operator]
        assert cells["Requests"] == row["requests"]
        assert cells["Prices"]


def test_groups_compare_with_the_same_group_before() -> None:
    rows = ordered(unit_costs({"by": "team"}, "data", NOW)["rows"], "team")
    before = [{**row, "blended_per_mtok": str(Decimal(row["blended_per_mtok"]) / 2)} for row in rows if row["team"] != "ads"]
    changes = {row["Team"]: row["Change, %"] for row in unit_table(rows, "team", before).rows}
    assert changes["搜索推荐"] == Decimal("100.0")
    assert changes["ads"] is None
    assert NO_NAME in changes


def test_groups_without_a_price_come_first_and_say_why() -> None:
    rows = ordered(unit_costs({"by": "team"}, "partial", NOW)["rows"], "team")
    shown = unit_table(rows, "team", [])
    assert shown.rows[0]["Cost, USD"] is None
    assert str(shown.rows[0]["Why a cost is empty"]).startswith("all costs: 96 quarter hours without a price")
    assert len(unit_unknowns(rows, "team")) == 5
    assert unit_points(rows, "team")[0]["cost"] is None


def test_undefined_cached_input_is_empty_with_its_reason() -> None:
    row = unit_costs({"by": "team"}, "data", NOW)["rows"][1]
    assert reasons_words(row["reasons"]) == "Cached input: no cached input tokens in closed, priced windows"
    card = unit_cards([row], [])[2]
    assert (card.label, card.value, card.delta) == ("Cached input", UNKNOWN, None)


def test_several_currencies_get_a_column_and_cards_of_their_own() -> None:
    row = unit_costs({"by": ""}, "data", NOW)["rows"][0]
    both = [row, {**row, "currency": "CNY"}]
    assert [card.label for card in unit_cards(both, [])][::5] == ["Blended (USD)", "Blended (CNY)"]
    shown = unit_table([{**r, "team": "a"} for r in both], "team", [])
    assert [r["Currency"] for r in shown.rows] == ["USD", "CNY"]


def test_the_line_under_the_title_names_every_source() -> None:
    line = provenance_line(overview({}, "data", NOW)["meta"], NOW)
    for part in (
        "Allocation basis",
        "default rate card",
        "estimate",
        "coverage 98.3 %",
        "counted up to 2026-11-18 12:07 UTC (12 s",
    ):
        assert part in line
    bare = provenance_line(overview({}, "empty", NOW)["meta"], NOW)
    for part in ("no price known", "coverage unknown", "nothing counted yet"):
        assert part in bare


def test_a_page_is_as_settled_as_its_least_settled_row() -> None:
    metas = [{"state": "final", "price_source": "b; a"}, {"state": "provisional", "price_source": "a"}]
    assert merged_meta(metas, {"basis": "usage"}) == {
        "basis": "usage", "state": "provisional", "price_source": "a; b", "utilisation_source": None, "weight_source": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "shown"),
    [("tenant:星辰科技/搜索", "星辰科技 / 搜索"), ("deployment:a/b/org/m", "a/b/org/m"), ("service_tier:P2", "service_tier P2")],
)
def test_scopes_read(scope: str, shown: str) -> None:
    assert scope_name(scope) == shown


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "  =x", "＝1", "|cmd"])
def test_a_text_that_a_spreadsheet_would_run_is_led_by_a_quote(text: str) -> None:
    shown = table([(Column("Team"), [text])])
    assert _read(as_csv(shown))[1] == [f"'{text}"]


def test_the_file_holds_what_the_screen_holds() -> None:
    shown = unit_table(ordered(unit_costs({"by": "team"}, "data", NOW)["rows"], "team"), "team", [])
    lines = _read(as_csv(shown))
    assert lines[0] == [column.title for column in shown.columns]
    assert [line[0] for line in lines[1:]][:2] == ["搜索推荐", "客服机器人"]
    assert [Decimal(line[1]) for line in lines[1:]] == [row["Blended, USD/MTok"] for row in shown.rows]
    assert "" in [line[lines[0].index("Cached input, USD/MTok")] for line in lines]


@given(st.decimals(min_value=-10, max_value=10, places=3, allow_nan=False))
def test_negative_numbers_stay_numbers_in_the_file(value: Decimal) -> None:
    assert Decimal(_read(as_csv(Table((Column("n", "number", 3),), ({"n": value},))))[1][0]) == value


def _read(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"))))
