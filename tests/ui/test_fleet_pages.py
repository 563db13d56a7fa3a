"""The Fleet and Heat map pages with data, without, with unknown figures, with the API down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pages_world import NOW, FakeClient
from sample_fleet import efficiencies, heat_maps
from streamlit.testing.v1 import AppTest

from core.efficiency import FIGURES
from core.windows import Window
from ui.client import ApiProblem
from ui.view_models.figures import UNKNOWN
from ui.view_models.fleet import WORDS, figure_points, fleet_cards, fleet_table, fleet_unknowns, step_for
from ui.view_models.heat_map import heat_cards, heat_points, length_table, ordered_labels, ordered_places

Open = Callable[..., AppTest]
PAGES = ("fleet", "heat_map")


def _texts(app: AppTest) -> str:
    parts = [*app.caption, *app.markdown, *app.info, *app.error, *app.warning, *app.subheader, *app.header]
    return "\n".join(str(part.value) for part in parts)


def _down(what: str, params: Mapping[str, str]) -> dict[str, Any]:
    raise ApiProblem("The Tokenfuse API cannot be reached.", hint="Is it running?")


def test_fleet_shows_the_chosen_deployment_and_all_of_them(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, "fleet", query={"deployment": "bj-1/prod/DeepSeek-R1-671B", "range": "24h"})
    assert not app.exception
    cards = {card.label: card.value for card in app.metric}
    assert cards["KV cache in use"] == "52.0 %"
    assert cards["Power of a GPU"] == UNKNOWN
    assert next(iter(app.dataframe[0].value["Deployment"])) == "bj-1/prod/Qwen3-32B"
    assert [params["step"] for what, params in client.asked if what == "efficiency"] == ["none", "hour"]
    assert "read the GPU exporter" in _texts(app)


def test_heat_map_asks_for_what_was_chosen(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, "heat_map", query={"kind": "output", "axis": "day", "range": "30d"})
    assert not app.exception
    (asked,) = [params for what, params in client.asked if what == "heat_map"]
    assert (asked["kind"], asked["axis"], asked["from"]) == ("output", "day", "2026-10-19T12:08:00Z")
    assert {card.label: card.value for card in app.metric}["Spread"] == "4.8 : 1"
    assert "consider a pool" in _texts(app)


@pytest.mark.parametrize("page", PAGES)
def test_without_data_the_page_says_so(open_app: Open, page: str) -> None:
    app = open_app(FakeClient("empty"), page)
    assert not app.exception
    assert "in this time range" in app.info[0].value
    assert not app.metric


@pytest.mark.parametrize("page", PAGES)
def test_what_cannot_be_known_is_unknown_with_its_reason(open_app: Open, page: str) -> None:
    app = open_app(FakeClient("partial"), page)
    assert not app.exception
    assert UNKNOWN in {card.value for card in app.metric}
    assert {"fleet": "page has no such metric", "heat_map": "the median is 0"}[page] in _texts(app)


@pytest.mark.parametrize("page", PAGES)
def test_with_the_api_down_the_page_says_so_and_offers_another_try(open_app: Open, page: str) -> None:
    app = open_app(FakeClient(answer=_down), page)
    assert not app.exception
    assert "cannot be reached" in app.error[0].value
    assert app.button(key="retry")


def test_the_figure_is_chosen_in_the_address(open_app: Open) -> None:
    app = open_app(FakeClient(), "fleet", query={"figure": "decode_ms_per_token", "range": "24h"})
    assert "Decode per token by hour" in _texts(app)


@pytest.mark.parametrize(("hours", "step"), [(1, "minute"), (24, "hour"), (24 * 8, "hour"), (24 * 30, "day")])
def test_steps_are_as_fine_as_the_range_allows(hours: int, step: str) -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    assert step_for(Window(start, start + timedelta(hours=hours))) == step


def test_every_figure_of_the_api_has_words() -> None:
    assert list(WORDS) == list(FIGURES)
    rows = efficiencies({"step": "none"}, "data", NOW)["rows"]
    assert set(fleet_table(rows).rows[0]) >= {"KV cache in use", "Decode per token, ms", "Preemptions"}
    assert all(card.note for card in fleet_cards(rows[0]))
    unknown = {"Batch efficiency", "GPU memory in use", "Power of a GPU", "Memory growth at equal load"}
    assert {item.name for item in fleet_unknowns(rows[1])} == unknown
    assert all(item.advice for row in rows for item in fleet_unknowns(row))


def test_a_hole_in_a_line_says_why() -> None:
    rows = efficiencies({"step": "hour"}, "partial", NOW)["rows"]
    points = figure_points(rows, "hour", "kv_use")
    assert {(point["value"], point["shown"], point["why"]) for point in points} == {
        (None, UNKNOWN, "the engine's page has no such metric")
    }


def test_heat_map_points_are_the_apis_and_lengths_grow_upwards() -> None:
    answer = heat_maps({}, "data", NOW)
    points = heat_points(answer, "requests")
    assert sum(point["value"] for point in points) == answer["whole"]["requests"]
    assert ordered_labels(answer)[0] == "32–64 K tokens"
    assert ordered_labels(answer)[-2:] == ["256–512 tokens", "0 tokens"]
    assert "16–32 K tokens" in ordered_labels(answer)
    assert ordered_places(answer, "hour_of_day")[::23] == ["00:00", "23:00"]
    assert length_table(answer["lengths"], "hour_of_day").rows[0]["Hour of the day"] == "00:00"
    assert [card.value for card in heat_cards(heat_maps({}, "empty", NOW), "input")][2:] == [UNKNOWN] * 3
