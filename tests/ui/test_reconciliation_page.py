"""The page "Reconciliation" with bills, without, with a fault, with the API down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pages_world import NOW, FakeClient
from sample_reconcile import reconciliations
from streamlit.testing.v1 import AppTest

from ui.client import ApiProblem
from ui.view_models.reconciliation import OPEN, WHOLE, open_parts, step_table, waterfall_points

Open = Callable[..., AppTest]


def _texts(app: AppTest) -> str:
    parts = [*app.caption, *app.markdown, *app.info, *app.error, *app.warning, *app.subheader, *app.success]
    return "\n".join(str(part.value) for part in parts)


def _one(kind: str = "data", **params: str) -> dict[str, Any]:
    found: dict[str, Any] = reconciliations(params, kind, NOW)["waterfalls"][0]  # type: ignore[arg-type]
    return found


def test_the_newest_period_is_shown_with_its_state(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, "reconciliation")
    assert not app.exception
    assert ("reconcile", {"view": "invoice"}) in client.asked
    cards = {card.label: card.value for card in app.metric}
    assert (cards["Invoice total, USD"], cards["Effective cost, USD"]) == ("19,944.36", "19,944.36")
    assert (cards["Machines, USD"], cards["Closed quarter hours, USD"]) == ("11,800.00", "10,500.00")
    said = _texts(app)
    assert "generated-aws-month 2026-08 version 1, not final" in said
    assert "provisional: may change until the invoice is issued" in said
    assert "A generated bill, not a real one." in said


def test_a_link_reproduces_view_and_period(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, "reconciliation", query={"bill_view": "usage", "bill_period": "2026-07"})
    assert not app.exception
    assert ("reconcile", {"view": "usage", "period": "2026-07"}) in client.asked
    assert "final: the invoice is issued" in _texts(app)


def test_open_parts_say_what_to_do_the_largest_first(open_app: Open) -> None:
    app = open_app(FakeClient(), "reconciliation")
    said = _texts(app)
    assert "**Unmatched (no machine): GPU** · 1,000.00 USD" in said
    assert "run `tokenfuse ledger close`" in said
    amounts = [Decimal(part.amount.split()[0].replace(",", "")) for part in open_parts(_one())]
    assert amounts == sorted(amounts, reverse=True)


def test_a_difference_without_a_name_stands_first(open_app: Open) -> None:
    app = open_app(FakeClient("partial"), "reconciliation")
    assert not app.exception
    assert "report it" in _texts(app)
    assert open_parts(_one("partial"))[0].is_difference


def test_without_a_bill_it_says_how_to_import_one(open_app: Open) -> None:
    app = open_app(FakeClient("empty"), "reconciliation")
    assert not app.exception
    assert "No bill was imported yet." in _texts(app)


def test_with_the_api_down_the_page_says_what_to_do(open_app: Open) -> None:
    def down(what: str, params: Mapping[str, str]) -> dict[str, Any]:
        raise ApiProblem("The Tokenfuse API cannot be reached.", hint="Is it running?")

    app = open_app(FakeClient(answer=down), "reconciliation")
    assert not app.exception
    assert "Is it running?" in _texts(app)


def test_each_bar_begins_where_the_one_before_ended_and_tenants_end_at_nothing() -> None:
    points = waterfall_points(_one())
    for before, after in pairwise(points):
        assert after["start"] == (0 if after["kind"] == WHOLE else before["end"])
        if after["kind"] == WHOLE:
            assert round(after["end"] - before["end"], 6) == 0
    assert [p["name"] for p in points if p["kind"] == WHOLE] == [
        "Invoice total", "Effective cost", "Machines", "Held by deployments", "Closed quarter hours",
    ]  # fmt: skip
    assert round(points[-1]["end"], 6) == 0
    assert {p["name"] for p in points if p["kind"] == OPEN} >= {"Unmatched (no machine): GPU", "Unassigned", "Not closed yet"}


def test_what_rounds_to_nothing_keeps_its_exact_value_in_the_note() -> None:
    (row,) = [row for row in step_table(_one()).rows if row["Part"] == "Rounding"]
    assert "exactly 0.0000000000023" in str(row["Note"])
