"""Data quality: what makes the numbers less true, how much money rests on it, and what to do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import streamlit as st

from ui.components.cards import draw_narrow_cards
from ui.components.filters import choose_range
from ui.components.notes import page_head
from ui.components.rest import draw_span, explain_figures
from ui.components.session import fetch, now
from ui.components.tables import download, draw_table
from ui.view_models import ranges
from ui.view_models.data_quality import (
    coverage_table,
    difference_table,
    fault_table,
    kind_table,
    overlap_words,
    quality_cards,
    reason_table,
    refused_table,
)

NEWEST = 200
MEANINGS = {
    "Coverage": "Engine tokens that usage records explain / engine tokens",
    "Difference": "Engine minus gateway; the known amounts of the reasons add up to it exactly",
    "Money": "What of the closed ledger rests on a fault: part of an hour's cost, or whole quarter hours",
    "Rollups against the archive": "Sums of each finished day's raw records compared with what the pages read",
}


def _kinds(answer: dict[str, Any]) -> None:
    st.subheader("Faults and what rests on them")
    if not answer["kinds"]:
        st.success("No fault was found in this time range.", icon=":material/verified:")
        return
    for words in overlap_words(answer["money"]):
        st.caption(words)
    shown = kind_table(answer["kinds"])
    draw_table(shown, "kinds")
    download(shown, "data-quality.csv")


def _views(rows: list[dict[str, Any]]) -> None:
    st.subheader("Engine view against gateway view")
    if not rows:
        st.info("Neither engines nor gateways worked in this time range.", icon=":material/hourglass_empty:")
        return
    draw_table(coverage_table(rows), "coverage")
    st.caption("Why they differ: positive where the engines did more than the gateway books; an empty amount cannot be told.")
    draw_table(reason_table(rows), "reasons")


def _details(answer: dict[str, Any]) -> None:
    if answer["standing"]["differences"]:
        st.subheader("Rollups that are not the archive's sums")
        draw_table(difference_table(answer["standing"]["differences"]), "differences")
    if answer["quarantined"]:
        st.subheader("Records not taken")
        draw_table(refused_table(answer["quarantined"]), "refused")
    if answer["faults"]:
        st.subheader("Faults reported by sources")
        st.caption(f"The newest {len(answer['faults']):,} of {answer['faults_total']:,}.")
        draw_table(fault_table(answer["faults"]), "faults")


def _body(at: datetime) -> None:
    with st.columns(3)[0]:
        chosen = choose_range("7d", at)
    window = ranges.elapsed(ranges.parsed(fetch("overview", {})["meta"]) if chosen is None else chosen, at)
    answer = fetch("quality", {**ranges.params(window), "limit": str(NEWEST)})
    rows = fetch("coverage", {**ranges.params(window), "by": "deployment", "reasons": "true"})["rows"]
    draw_span(answer["meta"], ranges.words(window), at)
    draw_narrow_cards(quality_cards(answer, rows))
    _kinds(answer)
    _views(rows)
    _details(answer)
    explain_figures(MEANINGS)


def page() -> None:
    page_head("Data quality")
    _body(now())


page()
