"""Overview: what was spent, what a token costs, what is idle, how the budgets burn, and how true the numbers are."""

from __future__ import annotations

import streamlit as st

from ui.components import session
from ui.components.cards import draw_cards
from ui.components.charts import spend_bars
from ui.components.filters import choose_range
from ui.view_models import (
    breaker_rows,
    budget_rows,
    freshness_note,
    overview_cards,
    range_params,
    series_holes,
    spend_series,
)


def _breakers(data: dict) -> None:  # type: ignore[type-arg]
    rows = breaker_rows(data["breakers_not_closed"])
    acting = [row for row in rows if row["State"] == "open" and row["Acting"] == "yes"]
    if acting:
        st.error(f"Requests are being refused for: {', '.join(row['Scope'] for row in acting)}", icon=":material/block:")
    if rows:
        st.subheader("Breakers that are not closed")
        st.dataframe(rows, hide_index=True, width="stretch")


def _budgets(data: dict) -> None:  # type: ignore[type-arg]
    st.subheader("Budgets")
    if not data["budgets"]:
        st.info(
            "No budget yet. Set one: `tokenfuse budget set --scope tenant:ORG --period month --amount 500`",
            icon=":material/savings:",
        )
        return
    st.dataframe(
        budget_rows(data["budgets"]),
        hide_index=True,
        width="stretch",
        column_config={"Spent, % of amount": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%.1f %%")},
    )


def _series(data: dict) -> None:  # type: ignore[type-arg]
    st.subheader("Spend over time")
    points = spend_series(data)
    if points:
        spend_bars(points, data["meta"].get("currency") or "", data["series_step"])
    else:
        st.info("No cost in this time range yet.", icon=":material/hourglass_empty:")
    for reason in series_holes(data):
        st.caption(f"Parts are missing: {reason}")


def page() -> None:
    st.title("Overview")
    left, _ = st.columns([1, 3])
    with left:
        choice = choose_range()
    data = session.fetch("overview", range_params(choice, session.now()))
    if data is None:
        return
    st.caption(freshness_note(data["meta"], session.now()))
    _breakers(data)
    draw_cards(overview_cards(data))
    _series(data)
    _budgets(data)


page()
