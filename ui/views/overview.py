"""Overview: what was spent, what a token costs, what is idle, how the budgets burn, and how true the numbers are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import streamlit as st

from core.windows import Window
from ui.components.cards import draw_cards
from ui.components.charts import parts_bar, spend_bars
from ui.components.filters import choose_basis, choose_range
from ui.components.notes import draw_provenance, explain, page_head
from ui.components.session import fetch, now
from ui.components.tables import draw_table, draw_unknowns
from ui.view_models import ranges
from ui.view_models.overview import (
    NO_BUDGET,
    CostPart,
    breaker_table,
    budget_table,
    cost_parts,
    overview_cards,
    overview_unknowns,
    parts_table,
    refusing,
    series_holes,
    spend_points,
)


def _alarm(data: dict[str, Any]) -> None:
    if names := refusing(data["breakers_not_closed"]):
        st.error(f"Requests are being refused for: {', '.join(names)}", icon=":material/block:")


def _breakers(data: dict[str, Any]) -> None:
    if data["breakers_not_closed"]:
        st.subheader("Breakers that are not closed")
        draw_table(breaker_table(data["breakers_not_closed"]), "breakers")


def _budgets(data: dict[str, Any]) -> None:
    st.subheader("Budgets")
    if data["budgets"]:
        draw_table(budget_table(data["budgets"]), "budgets")
    else:
        st.info(f"No budget yet. {NO_BUDGET}", icon=":material/savings:")


def _series(data: dict[str, Any]) -> None:
    st.subheader("Spend over time")
    points = list(spend_points(data))
    if any(point["cost"] is not None for point in points):
        spend_bars(points, data["meta"].get("currency") or "", data["series_step"])
    else:
        st.info("No known cost in this time range.", icon=":material/hourglass_empty:")
    for hole in series_holes(data):
        st.caption(hole)


def _parts(parts: list[CostPart], *, whole: str) -> None:
    st.subheader("Where the money went")
    st.caption("Closed quarter hours only; the running estimate of Spend is not in it.")
    if not parts:
        st.info("No quarter hour of this range is closed and priced yet.", icon=":material/hourglass_empty:")
        return
    parts_bar(parts)
    draw_table(parts_table(parts, whole=whole), "parts")


def _body(chosen: Window | None, basis: str, at: datetime) -> None:
    data = fetch("overview", {**ranges.params(chosen), "basis": basis})
    window = ranges.parsed(data["meta"])
    parts = cost_parts(fetch("ledger", {**ranges.params(window), "by": "kind"})["rows"])
    draw_provenance(data["meta"], ranges.words(ranges.elapsed(window, at)), at)
    _alarm(data)
    draw_cards(overview_cards(data, parts))
    draw_unknowns(overview_unknowns(data))
    _series(data)
    _parts(parts, whole="Capacity cost" if data["idle_share"] is not None else "Sum")
    _budgets(data)
    _breakers(data)
    explain(data["meta"])


def page() -> None:
    page_head("Overview")
    at = now()
    first, second, _ = st.columns(3)
    with first:
        range_box = st.container()
    with second:
        basis = choose_basis()
    with range_box:
        chosen = choose_range(ranges.MONTH, at)
    _body(chosen, basis, at)


page()
