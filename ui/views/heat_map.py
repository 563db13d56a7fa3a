"""Heat map: when requests of which length come, and how unlike their lengths are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import streamlit as st

from core.windows import Window
from ui.components.cards import draw_narrow_cards
from ui.components.filters import choose_one, choose_range
from ui.components.fleet_charts import heat_rects
from ui.components.notes import page_head
from ui.components.rest import draw_span, explain_figures
from ui.components.session import fetch, now
from ui.components.tables import download, draw_table
from ui.view_models import ranges
from ui.view_models.heat_map import (
    AXES,
    KINDS,
    MEASURES,
    SPREAD_HELP,
    heat_cards,
    heat_points,
    length_table,
    ordered_labels,
    ordered_places,
)

MEANINGS = {
    "Length": "Tokens of one request, in doublings; K is 1,024 tokens, as in context lengths",
    "Requests": "Each request once, in the hour it finished; requests without counts have no length and are not here",
    "P50, P90": "From histograms with four steps to a doubling: right to 19 %",
    "Spread": SPREAD_HELP.rstrip("."),
    "Hour of the day": "Of the reporting zone",
}


def _filters(at: datetime) -> tuple[Window | None, str, str, str]:
    boxes = [column.container() for column in st.columns(4)]
    with boxes[1]:
        kind = choose_one("Length of", "kind", KINDS, "input")
    with boxes[2]:
        axis = choose_one("Along", "axis", AXES, "hour_of_day")
    with boxes[3]:
        measure = choose_one("Colour", "measure", MEASURES, "requests")
    with boxes[0]:
        return choose_range("7d", at), kind, axis, measure


def _body(answer: dict[str, Any], kind: str, axis: str, measure: str) -> None:
    draw_narrow_cards(heat_cards(answer, kind))
    st.subheader(f"{MEASURES[measure]} by {KINDS[kind].lower()}")
    points, places = heat_points(answer, measure), ordered_places(answer, axis)
    heat_rects(points, places, ordered_labels(answer), AXES[axis], MEASURES[measure])
    st.subheader("Lengths over time")
    shown = length_table(answer["lengths"], axis)
    draw_table(shown, "lengths")
    download(shown, f"{kind}-lengths-by-{axis}.csv")


def page() -> None:
    page_head("Heat map")
    at = now()
    chosen, kind, axis, measure = _filters(at)
    window = ranges.elapsed(ranges.parsed(fetch("overview", {})["meta"]) if chosen is None else chosen, at)
    answer = fetch("heat_map", {**ranges.params(window), "kind": kind, "axis": axis})
    draw_span(answer["meta"], ranges.words(window), at)
    if answer["cells"]:
        _body(answer, kind, axis, measure)
    else:
        st.info("No request with counts finished in this time range. Choose a longer one.", icon=":material/hourglass_empty:")
    explain_figures(MEANINGS)


page()
