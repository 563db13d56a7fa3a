"""Why did it change: two periods, and the causes that lead from the first cost to the second."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ui.components.cards import draw_narrow_cards
from ui.components.filters import choose_one, type_period
from ui.components.notes import page_head
from ui.components.rest import draw_span, explain_figures
from ui.components.session import fetch, now
from ui.components.tables import download, draw_table
from ui.components.why_chart import waterfall
from ui.view_models.figures import stamp
from ui.view_models.why import BY, cause_table, default_periods, mover_table, waterfall_points, why_cards
from ui.view_models.why_bill import bill_cards, bill_points, bucket_table, ledger_table, machine_table

MEANINGS = {
    "Cost": "Capacity cost of closed quarter hours that have a price; the others are listed",
    "Causes": "They add up to the change exactly, and no order of causes is assumed (Shapley values)",
    "Volume, token mix, cache, speed": "Tokens an hour, output's share, cached share of the input, GPU time a token took",
    "Bills": "Every charge in one bucket; whole months as invoiced, anything else by day of use",
    "Idle": "GPUs in service with nothing running: a scale-out the work did not need shows here",
    "Price": "Price of a GPU-hour, with charge basis and GPU types",
    "Tenants": "What each was allocated, with idle time borne by the work",
}


def _total(total: dict[str, Any], first: str, second: str) -> None:
    draw_narrow_cards(why_cards(total, first, second))
    st.subheader(f"Ledger, from {first} to {second}, {total['currency']}")
    waterfall(waterfall_points(total), total["currency"])
    draw_table(cause_table(total), f"causes_{total['currency']}")


def _bill(answer: dict[str, Any], first: str, second: str) -> None:
    """The level above the ledger."""
    bill = answer["bill"]
    how = "as invoiced" if bill["view"] == "invoice" else "by day of use"
    for total in bill["totals"]:
        currency = total["currency"]
        st.subheader(f"Bills, {how}, {currency}")
        draw_narrow_cards(bill_cards(total, first, second))
        waterfall(bill_points(total), currency)
        draw_table(bucket_table(total["buckets"], currency), f"buckets_{currency}")
        if total["machine_effects"]:
            st.markdown("**Machine time: why its effective cost changed**")
            draw_table(machine_table(total), f"machines_{currency}")
        with st.expander("Bill-only lines: charges of no machine in the inventory"):
            draw_table(bucket_table(total["bill_only"], currency), f"bill_only_{currency}")
        with st.expander("From the bills to the ledger"):
            draw_table(ledger_table(total), f"ledger_{currency}")


def _foot(answer: dict[str, Any]) -> None:
    for name in ("first", "second"):
        until = answer[name]["closed_until"]
        if until and until < answer[name]["window_end"]:
            st.caption(f"The last closed quarter hour of the {name} period ends {stamp(until)} UTC; later ones are in no sum.")
    for gap in answer["unpriced"]:
        st.warning(f"{gap['deployment']}: {gap['windows']} quarter hours of the {gap['period']} period have no price.")
    if answer["bill"]["reason"]:
        st.caption(f"Bills: {answer['bill']['reason']}.")
    explain_figures(MEANINGS)


def page() -> None:
    page_head("Why did it change")
    at = now()
    boxes = [column.container() for column in st.columns(3)]
    starts = default_periods(at)
    with boxes[0]:
        first = type_period("First period", "first", starts[0])
    with boxes[1]:
        second = type_period("Second period", "second", starts[1])
    with boxes[2]:
        by = choose_one("Who moved, by", "movers", BY, "deployment")
    answer = fetch("explain", {"from": first, "to": second, "by": by})
    draw_span(answer["meta"], f"{first} compared with {second}, closed quarter hours", at)
    _bill(answer, first, second)
    if not answer["totals"]:
        st.info("No quarter hour with a price is closed in either period. Choose others.", icon=":material/hourglass_empty:")
    for total in answer["totals"]:
        _total(total, first, second)
    if answer["rows"]:
        st.subheader("Who moved")
        shown = mover_table(answer["rows"], by)
        draw_table(shown, "movers_table")
        download(shown, f"change-by-{by}.csv")
    _foot(answer)


page()
