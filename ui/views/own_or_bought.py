"""Own or bought: your tokens beside the same tokens at vendors' list prices, GPU types, and tokens without a price."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ui.components.cards import draw_narrow_cards
from ui.components.filters import choose_one, choose_range
from ui.components.notes import page_head
from ui.components.own_or_bought_chart import compare_bars
from ui.components.rest import draw_span, explain_figures
from ui.components.session import fetch, now
from ui.components.tables import download, draw_table, draw_unknowns
from ui.view_models import ranges
from ui.view_models.own_or_bought import (
    BY,
    CHART_ROWS,
    bars,
    cards,
    compare_table,
    field_table,
    hardware_table,
    largest,
    unknowns,
    unpriced_table,
    unpriced_words,
)

MEANINGS = {
    "Own, idle time borne": "Capacity cost of closed quarter hours over their tokens; idle GPU time is borne by the work",
    "Own, while busy": "The part of that cost that served tokens",
    "Bought": "The same input, cached and output tokens at the list price in force when they were used, standard way of selling",
    "Use": "Share of the capacity cost that was busy time",
    "Break-even use": "Share of busy time from which on a token of your own costs no more than the vendor's",
    "Beside": "Which model compares with yours is a person's word: `tokenfuse rates vendor alias compare`",
}
NOTHING = "No quarter hour of your own engines with a price is closed in this time range. Choose a longer one."


def _against() -> str:
    about = "VENDOR/MODEL, several separated by commas; empty: as people said"
    text: str = st.text_input("Compare with", key="against", max_chars=400, help=about, placeholder="deepseek/deepseek-chat")
    return text.strip()


def _compared(answer: dict[str, Any], by: str) -> None:
    rows = largest(answer["rows"])
    draw_narrow_cards(cards(rows))
    draw_unknowns(unknowns(rows))
    points = bars(rows)
    for currency in sorted({point["currency"] for point in points}):
        compare_bars([point for point in points if point["currency"] == currency], currency)
    if len(rows) > CHART_ROWS:
        st.caption(f"The {CHART_ROWS} rows with the most cost; the table has all.")
    shown = compare_table(rows, by)
    draw_table(shown, "compared")
    download(shown, f"own-or-bought-by-{by}.csv")


def _hardware(answer: dict[str, Any]) -> None:
    if answer["hardware"]:
        st.subheader("GPU types, as measured here")
        st.caption("Tokens a second while busy, at the price of a GPU-hour now. What was not measured here has no number.")
        draw_table(hardware_table(answer["hardware"]), "hardware")
    if answer["field"]["rows"]:
        with st.expander(f"Formulas of the field: {answer['field']['label']}", icon=":material/function:"):
            draw_table(field_table(answer["field"]["rows"]), "field")


def _unpriced(answer: dict[str, Any]) -> None:
    st.subheader("Tokens without a price")
    if not answer["rows"]:
        st.success("Every token of the closed quarter hours in this time range has a price.", icon=":material/check_circle:")
        return
    st.warning(unpriced_words(answer), icon=":material/money_off:")
    draw_table(unpriced_table(answer["rows"]), "unpriced")


def page() -> None:
    page_head("Own or bought")
    at = now()
    boxes = [column.container() for column in st.columns(3)]
    with boxes[1]:
        by = choose_one("Rows", "rows", BY, "model")
    with boxes[2]:
        against = _against()
    with boxes[0]:
        chosen = choose_range("7d", at)
    month = ranges.parsed(fetch("overview", {})["meta"]) if chosen is None else chosen
    window = ranges.elapsed(month, at)
    asked = {**ranges.params(window), "by": by} | ({"against": against} if against else {})
    answer = fetch("compare", asked)
    draw_span(answer["meta"], f"{ranges.words(window)}, closed quarter hours", at)
    if answer["rows"]:
        _compared(answer, by)
    else:
        st.info(NOTHING, icon=":material/hourglass_empty:")
    _hardware(answer)
    _unpriced(fetch("unpriced", ranges.params(window)))
    explain_figures(MEANINGS)


page()
