"""Fleet: how well each deployment's engines are used, and how that moved."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import streamlit as st

from core.efficiency import FIGURES
from core.windows import Window
from ui.components.cards import draw_cards
from ui.components.filters import choose_one, choose_range
from ui.components.fleet_charts import figure_lines
from ui.components.notes import page_head
from ui.components.rest import draw_span, explain_figures
from ui.components.session import fetch, now
from ui.components.tables import download, draw_table, draw_unknowns
from ui.view_models import ranges
from ui.view_models.fleet import WORDS, figure_points, fleet_cards, fleet_table, fleet_unknowns, step_for
from ui.view_models.fleet_checks import checks_line, checks_table

MOST_POINTS = 50_000


def _filters(at: datetime) -> tuple[Window | None, str]:
    first, second, _ = st.columns(3)
    with first:
        range_box = st.container()
    with second:
        figure = choose_one("Figure", "figure", {name: about.title for name, about in WORDS.items()}, "kv_use")
    with range_box:
        return choose_range("24h", at), figure


def _one(rows: list[dict[str, Any]]) -> None:
    names = {row["deployment"]: row for row in rows}
    chosen = choose_one("Deployment", "deployment", {name: name for name in names}, next(iter(names)))
    draw_cards(fleet_cards(names[chosen]))
    draw_unknowns(fleet_unknowns(names[chosen]))


def _series(window: Window, figure: str) -> None:
    step, about = step_for(window), WORDS[figure]
    st.subheader(f"{about.title} by {step}")
    answer = fetch("efficiency", {**ranges.params(window), "step": step, "limit": str(MOST_POINTS)})
    points = figure_points(answer["rows"], step, figure)
    if any(point["value"] is not None for point in points):
        figure_lines(points, f"{about.title}, {about.unit}".rstrip(", "), share=about.kind == "share")
    else:
        why = next((point["why"] for point in points if point["why"]), "no engine page was read")
        st.info(f"Unknown throughout this time range: {why}.", icon=":material/help:")
    if answer["total_rows"] > len(answer["rows"]):
        st.warning(f"The first {len(answer['rows']):,} of {answer['total_rows']:,} points: choose a shorter range.")


def _checks() -> None:
    st.subheader("How engines and gateways are set")
    answer = fetch("fleet_checks", {"limit": str(MOST_POINTS)})
    st.caption(checks_line(answer))
    if answer["rows"]:
        draw_table(checks_table(answer["rows"]), "checks")


def page() -> None:
    page_head("Fleet")
    at = now()
    chosen, figure = _filters(at)
    window = ranges.elapsed(ranges.parsed(fetch("overview", {})["meta"]) if chosen is None else chosen, at)
    whole = fetch("efficiency", {**ranges.params(window), "step": "none"})
    draw_span(whole["meta"], ranges.words(window), at)
    if whole["rows"]:
        _one(whole["rows"])
        _series(window, figure)
        st.subheader("All deployments")
        shown = fleet_table(whole["rows"])
        draw_table(shown, "fleet")
        download(shown, f"fleet-{window.start:%Y%m%dT%H%MZ}-{window.end:%Y%m%dT%H%MZ}.csv")
    else:
        hint = "`tokenfuse doctor fleet` says which engines do not answer."
        st.info(f"No engine page was read in this time range. {hint}", icon=":material/hourglass_empty:")
    explain_figures({WORDS[name].title: meaning for name, meaning in FIGURES.items()})
    _checks()


page()
