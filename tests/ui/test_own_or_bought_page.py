"""The page "Own or bought" with data, without, with nothing to compare with, with the API down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pages_world import NOW, FakeClient
from sample_compare import comparisons, unpriced
from streamlit.testing.v1 import AppTest

from ui.client import ApiProblem
from ui.view_models.own_or_bought import bars, compare_table, hardware_table, unknowns, unpriced_table

Open = Callable[..., AppTest]


def _texts(app: AppTest) -> str:
    parts = [*app.caption, *app.markdown, *app.info, *app.error, *app.warning, *app.subheader, *app.success]
    return "\n".join(str(part.value) for part in parts)


def test_the_largest_comparison_leads_the_page(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, "own_or_bought", query={"range": "7d", "rows": "tenant"})
    assert not app.exception
    assert [params["by"] for what, params in client.asked if what == "compare"][-1] == "tenant"
    cards = {card.label: card.value for card in app.metric}
    assert (cards["Own, a million tokens"], cards["Bought, a million tokens"]) == ("0.5000 USD", "0.2930 USD")
    assert (cards["Own against bought"], cards["Break-even use"]) == ("1.71×", "51.2 %")
    assert "5.40 M tokens have no price" in _texts(app)


def test_what_a_person_types_is_asked_for(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, "own_or_bought")
    app.text_input(key="against").set_value("acme/small").run()
    assert [params.get("against") for what, params in client.asked if what == "compare"][-1] == "acme/small"


def test_without_closed_quarter_hours_it_says_so(open_app: Open) -> None:
    app = open_app(FakeClient("empty"), "own_or_bought")
    assert not app.exception
    assert "No quarter hour of your own engines with a price is closed" in _texts(app)
    assert "Every token of the closed quarter hours in this time range has a price" in _texts(app)


def test_without_a_word_which_model_compares_it_says_how(open_app: Open) -> None:
    app = open_app(FakeClient("partial"), "own_or_bought")
    assert not app.exception
    assert "nobody said with which model" in _texts(app).replace("\\", "")
    assert not app.metric


def test_with_the_api_down_the_page_says_what_to_do(open_app: Open) -> None:
    def down(what: str, params: Mapping[str, str]) -> dict[str, Any]:
        raise ApiProblem("The Tokenfuse API cannot be reached.", hint="Is it running?")

    app = open_app(FakeClient(answer=down), "own_or_bought")
    assert not app.exception
    assert "Is it running?" in _texts(app)


def test_an_unknown_figure_has_no_bar_and_a_reason() -> None:
    rows = comparisons({}, "data", NOW)["rows"]
    assert {point["what"] for point in bars(rows) if point["row"] == "embedder"} == {"Own, idle time borne", "Own, while busy"}
    (one,) = unknowns(rows)
    assert (one.name, one.reason) == ("embedder", "nobody said with which model of a vendor it is to be compared")


def test_tables_say_never_and_not_measured() -> None:
    answer = comparisons({}, "data", NOW)
    says = {row["Model"]: row["Break-even use"] for row in compare_table(answer["rows"], "model").rows}
    assert says == {"embedder": "unknown", "llama-70b": "51.2 %", "tiny": "never at this price"}
    notes = {row["GPU type"]: row["Note"] for row in hardware_table(answer["hardware"]).rows}
    assert notes == {"H100": "AWS (list)", "L4": "not measured here"}
    (hole,) = unpriced_table(unpriced({}, "data", NOW)["rows"]).rows
    assert (hole["Vendor"], hole["Input"], hole["Output"]) == ("deepseek", 4_500_000, 900_000)
