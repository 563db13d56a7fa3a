"""What the pages show: unknown stays unknown, parts add up, files that hold what the screen holds."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_answers import ledger, overview, unit_costs

from ui.view_models.figures import UNKNOWN, rounded
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
from ui.view_models.tables import Column, Table, as_csv, table
from ui.view_models.unit_cost import (
    GROUPS,
    NO_NAME,
    key_words,
    ordered,
    reasons_words,
    unit_cards,
    unit_points,
    unit_table,
    unit_unknowns,
)

NOW = datetime(2026, 11, 18, 12, 7, 30, tzinfo=UTC)


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


def test_a_platform_that_counted_nothing_has_spent_an_unknown_amount_not_zero() -> None:
    data = overview({}, "empty", NOW) | {"spend": "0", "spend_before": "0", "spend_reason": ""}
    assert overview_cards(data, [])[0].value == UNKNOWN
    assert overview_unknowns(data)[0].name == "Spend"


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


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"key_id": "k-17", "key_alias": "rag prod"}, "rag prod (k-17)"),
        ({"key_id": "0123456789abcdef", "key_alias": "rag"}, "rag (0123456789ab…)"),
        ({"key_id": "k-17", "key_alias": ""}, "k-17"),
        ({"key_id": "k-17"}, "k-17"),
        ({"key_id": "", "key_alias": ""}, NO_NAME),
    ],
)
def test_a_key_is_shown_by_its_name_with_its_id(row: dict[str, str], words: str) -> None:
    assert key_words(row, "key_id") == words
