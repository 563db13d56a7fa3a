"""Unit cost: what a million tokens costs by model, tenant and time, on either basis, and how it moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import streamlit as st

from core.windows import Window
from ui.components.cards import draw_narrow_cards
from ui.components.charts import unit_cost_bars, unit_cost_lines
from ui.components.filters import choose_basis, choose_group, choose_range
from ui.components.notes import draw_provenance, explain, page_head
from ui.components.session import fetch, now
from ui.components.tables import download, draw_table, draw_unknowns
from ui.view_models import ranges
from ui.view_models.provenance import merged_meta
from ui.view_models.unit_cost import (
    CHART_ROWS,
    GROUPS,
    PER_MTOK,
    TIME_GROUPS,
    Row,
    ordered,
    unit_cards,
    unit_points,
    unit_table,
    unit_unknowns,
)


def _filters(at: datetime) -> tuple[Window, str, str]:
    boxes = [column.container() for column in st.columns(3)]
    with boxes[1]:
        basis = choose_basis()
    with boxes[2]:
        by = choose_group(GROUPS, "deployment")
    with boxes[0]:
        chosen = choose_range("7d", at)
    month = ranges.parsed(fetch("overview", {})["meta"]) if chosen is None else chosen
    return ranges.elapsed(month, at), basis, by


def _read(window: Window, basis: str, by: str) -> dict[str, Any]:
    return fetch("unit_cost", {**ranges.params(window), "basis": basis, "by": by})


def _chart(rows: Sequence[Row], by: str) -> None:
    currencies = sorted({row["currency"] for row in rows})
    for currency in currencies:
        points = unit_points([row for row in rows if row["currency"] == currency], by)
        if by in TIME_GROUPS:
            unit_cost_lines(points, currency)
        else:
            unit_cost_bars(points, GROUPS[by], currency)
            if len(points) > CHART_ROWS * len(PER_MTOK):
                st.caption(f"The {CHART_ROWS} groups with the largest cost; the table has all {len(points) // len(PER_MTOK)}.")


def page() -> None:
    page_head("Unit cost")
    at = now()
    window, basis, by = _filters(at)
    answer, earlier = _read(window, basis, by), ranges.before(window)
    rows = ordered(answer["rows"], by)
    meta = merged_meta([row["meta"] for row in rows], answer["meta"])
    if not rows:
        st.info("No quarter hour with work is closed in this time range. Choose a longer one.", icon=":material/hourglass_empty:")
        return
    totals, past = _read(window, basis, "")["rows"], _read(earlier, basis, "")["rows"]
    meta |= _whole(totals)
    draw_provenance(meta, f"{ranges.words(window)}, closed quarter hours", at)
    draw_narrow_cards(unit_cards(totals, past))
    st.caption(f"Compared with {ranges.words(earlier)}.")
    draw_unknowns(unit_unknowns(rows, by))
    _chart(rows, by)
    shown = unit_table(rows, by, [] if by in TIME_GROUPS else _read(earlier, basis, by)["rows"])
    if answer["total_rows"] > len(rows):
        st.warning(f"The first {len(rows)} of {answer['total_rows']} rows: choose a shorter range or a coarser group.")
    draw_table(shown, "unit_costs")
    download(shown, f"unit-cost-by-{by}-{basis}-{window.start:%Y%m%dT%H%MZ}-{window.end:%Y%m%dT%H%MZ}.csv")
    explain(meta)


def _whole(totals: list[dict[str, Any]]) -> dict[str, Any]:
    return {"coverage": totals[0]["meta"].get("coverage")} if len(totals) == 1 else {}


page()
