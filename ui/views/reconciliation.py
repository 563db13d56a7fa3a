"""Reconciliation: from the invoice's total to the tenants, every difference with its name and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from ui.components.cards import draw_narrow_cards
from ui.components.filters import choose_one
from ui.components.notes import page_head
from ui.components.rest import draw_span, explain_figures
from ui.components.session import fetch, now
from ui.components.tables import download, draw_table
from ui.components.why_chart import waterfall
from ui.view_models.reconciliation import (
    ENTERS,
    LEAVES,
    OPEN,
    TENANT,
    VIEWS,
    WHOLE,
    OpenPart,
    cards,
    delivery_line,
    generated,
    open_parts,
    step_table,
    waterfall_points,
)

HERE = Path(__file__).parent
COLOURS = {WHOLE: "#64748b", LEAVES: "#0d9488", ENTERS: "#dc2626", OPEN: "#f59e0b", TENANT: "#3b82f6"}
PAGES = {"data_quality": "Data quality", "unit_cost": "Unit cost"}
MEANINGS = {
    "Billed and effective": "What the invoice says, and the same with commitments spread over what used them",
    "Machines": "Charges that a rule or a person matched to a machine of the inventory",
    "Unassigned": "Billed GPU time that no deployment held",
    "Closed quarter hours": "Provisional by rates, trued up by a bill, final when its invoice is issued",
    "By tenant": "Allocation basis: idle and starting time is borne by the work",
    "By invoice, by usage": "A correction of July is in the invoice that bills it and in July's use: once in each view",
}


def _open(parts: list[OpenPart]) -> None:
    st.subheader("Open, and what to do")
    if not parts:
        st.success("Nothing is open: every part is settled.", icon=":material/check_circle:")
    for part in parts:
        with st.container(border=True, gap="xsmall"):
            icon = ":material/error:" if part.is_difference else ":material/pending_actions:"
            st.markdown(f"{icon} **{part.name}** · {part.amount}  \n{part.hint}")
            if part.page:
                st.page_link(HERE / f"{part.page}.py", label=f"See {PAGES[part.page]}", icon=":material/arrow_forward:")


def _waterfall(one: dict[str, Any]) -> None:
    st.caption(delivery_line(one, now()))
    if generated(one["deliveries"]):
        st.info("A generated bill, not a real one.", icon=":material/science:")
    draw_narrow_cards(cards(one))
    st.subheader(f"From the invoice to the tenants, {one['currency']}")
    about = f"From the invoice's total to the tenants in {one['currency']}, part by part"
    waterfall(waterfall_points(one), one["currency"], colours=COLOURS, title="Part", about=about)
    _open(open_parts(one))
    st.subheader("Every step, to the last cent")
    shown = step_table(one)
    draw_table(shown, f"steps_{one['currency']}_{one['billing_period']}")
    download(shown, f"reconciliation-{one['billing_period'].removesuffix('-01')}-{one['currency']}.csv")


def page() -> None:
    page_head("Reconciliation")
    boxes = [column.container() for column in st.columns(3)]
    with boxes[0]:
        view = choose_one("View", "bill_view", VIEWS, "invoice")
    answer = fetch("reconcile", {"view": view})
    if not answer["periods"]:
        st.info(
            "No bill was imported yet. `tokenfuse ingest bill SOURCE --format F` reads one; docs/bills.md names the formats.",
            icon=":material/receipt_long:",
        )
        explain_figures(MEANINGS)
        return
    months = {name: name for name in reversed(answer["periods"])}
    with boxes[1]:
        period = choose_one("Billing period" if view == "invoice" else "Month of use", "bill_period", months, answer["period"])
    if period != answer["period"]:
        answer = fetch("reconcile", {"view": view, "period": period})
    currencies = {one["currency"]: one["currency"] for one in answer["waterfalls"]}
    with boxes[2]:
        currency = choose_one("Currency", "bill_currency", currencies, next(iter(currencies)))
    draw_span(answer["meta"], f"{period}, {VIEWS[view].split(' (')[0].lower()}", now())
    chosen = [one for one in answer["waterfalls"] if one["currency"] == currency]
    for one in chosen:
        if len(chosen) > 1:
            st.header(f"Billing period from {one['billing_period']}")
        _waterfall(one)
    explain_figures(MEANINGS)


page()
