"""The page "Why did it change" with data, without, with unknown prices, with the API down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pages_world import NOW, FakeClient
from sample_explain import explanations
from streamlit.testing.v1 import AppTest

from ui.client import ApiProblem
from ui.view_models.why import cause_table, default_periods, mover_table, waterfall_points
from ui.view_models.why_bill import bill_points, bucket_table, machine_table

Open = Callable[..., AppTest]


def _texts(app: AppTest) -> str:
    parts = [*app.caption, *app.markdown, *app.info, *app.error, *app.warning, *app.subheader]
    return "\n".join(str(part.value) for part in parts)


def test_the_page_asks_for_the_periods_of_the_link(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, "why", query={"first": "2026-05", "second": "2026-06", "movers": "tenant"})
    assert not app.exception
    assert ("explain", {"from": "2026-05", "to": "2026-06", "by": "tenant"}) in client.asked
    cards = {card.label: card.value for card in app.metric}
    assert (cards["First period"], cards["Second period"], cards["Change"]) == ("200.00 USD", "280.00 USD", "80.00 USD")
    assert cards["Largest cause"] == "60.00 USD"
    assert "no bill imported" in _texts(app)
    assert "last closed quarter hour of the second period ends 2026-06-20 00:00 UTC" in _texts(app)


def test_without_closed_quarter_hours_it_says_so(open_app: Open) -> None:
    app = open_app(FakeClient("empty"), "why")
    assert not app.exception
    assert "No quarter hour with a price is closed" in _texts(app)


def test_quarter_hours_without_a_price_are_named(open_app: Open) -> None:
    app = open_app(FakeClient("partial"), "why")
    assert not app.exception
    assert "lab/prod/new: 4 quarter hours of the first period have no price." in _texts(app)


def test_the_bills_stand_above_the_ledger(open_app: Open) -> None:
    app = open_app(FakeClient("partial"), "why")
    assert not app.exception
    assert [one.value for one in app.subheader][:2] == ["Bills, as invoiced, USD", "Ledger, from 2026-09 to 2026-10, USD"]
    cards = {card.label: card.value for card in app.metric}
    assert (cards["Billed, second period"], cards["Change, effective"]) == ("3,289.00 USD", "1,979.00 USD")


def test_the_bills_bars_lead_from_total_to_total() -> None:
    (total,) = explanations({}, "partial", NOW)["bill"]["totals"]
    points = bill_points(total)
    assert [(point["name"], point["end"]) for point in points] == [
        ("First period", 1310), ("GPU machines", 3287), ("Taxes", 3289), ("Second period", 3289),
    ]  # fmt: skip
    assert [row["Cause"] for row in machine_table(total).rows] == ["Coverage by commitments"]
    assert [row["Bucket"] for row in bucket_table(total["bill_only"], "USD").rows] == ["Taxes"]


def test_with_the_api_down_the_page_says_what_to_do(open_app: Open) -> None:
    def down(what: str, params: Mapping[str, str]) -> dict[str, Any]:
        raise ApiProblem("The Tokenfuse API cannot be reached.", hint="Is it running?")

    app = open_app(FakeClient(answer=down), "why")
    assert not app.exception
    assert "Is it running?" in _texts(app)


def test_each_bar_begins_where_the_one_before_ended() -> None:
    (total,) = explanations({}, "data", NOW)["totals"]
    points = waterfall_points(total)
    assert [point["name"] for point in points] == ["First period", "Idle", "Cache", "Price", "Volume", "Second period"]
    assert [point["end"] for point in points[:-2]] == [point["start"] for point in points[1:-1]]
    assert (points[-1]["start"], points[-1]["end"]) == (0, 280)


def test_tables_hold_causes_and_movers() -> None:
    answer = explanations({"by": "model"}, "data", NOW)
    assert [row["Cause"] for row in cause_table(answer["totals"][0]).rows] == ["Idle", "Cache", "Price", "Volume"]
    (row,) = mover_table(answer["rows"], "model").rows
    assert (row["Model"], row["Largest cause"]) == ("docs", "Idle: 60.00 USD")


def test_the_first_view_compares_the_two_months_before_this_one() -> None:
    assert default_periods(NOW) == ("2026-09", "2026-10")
