"""Unit cost: what a million tokens costs by model, tenant and time, on either basis."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import streamlit as st

from ui.components import session
from ui.components.charts import unit_cost_bars, unit_cost_lines
from ui.components.filters import choose_basis, choose_group, choose_range
from ui.view_models import KEY_WORDS, basis_note, freshness_note, range_params, unit_rows

GROUPS = {key: KEY_WORDS[key] for key in ("deployment", "model_id", "team", "user", "service_tier", "hour", "day")}


def as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """Exactly the rows on screen. A text that a spreadsheet would run as a formula is led by a quote."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"'{v}" if isinstance(v, str) and v[:1] in "=+-@\t\r" and v else v for k, v in row.items()})
    return out.getvalue().encode("utf-8-sig")


def _table(rows: list[dict[str, Any]], currency: str) -> None:
    price = st.column_config.NumberColumn(format="%.4f", help=f"{currency} per million tokens; empty: not defined, see Note")
    st.dataframe(
        rows,
        hide_index=True,
        width="stretch",
        column_config={
            **dict.fromkeys(("Input", "Cached input", "Output", "Blended"), price),
            "Per request": st.column_config.NumberColumn(format="%.6f", help=f"{currency} per request"),
            "Cost": st.column_config.NumberColumn(format="%.4f", help=currency),
            **dict.fromkeys(("Requests", "Input tokens", "Output tokens"), st.column_config.NumberColumn(format="localized")),
        },
    )


def page() -> None:
    st.title("Unit cost")
    columns = st.columns(3)
    with columns[0]:
        choice = choose_range("7d")
    with columns[1]:
        basis = choose_basis()
    with columns[2]:
        by = choose_group(GROUPS, "deployment")
    data = session.fetch("unit_cost", {**range_params(choice, session.now()), "basis": basis, "by": by})
    if data is None:
        return
    currency = data["meta"].get("currency") or ""
    st.caption(f"{currency} per million tokens · {basis_note(data['meta'])}. {freshness_note(data['meta'], session.now())}")
    rows = unit_rows(data["rows"], [by])
    if not rows:
        st.info("No tokens were metered in this time range. Choose a longer one.", icon=":material/hourglass_empty:")
        return
    title = KEY_WORDS[by]
    if by in {"hour", "day"}:
        unit_cost_lines(rows, title, currency)
    else:
        unit_cost_bars(rows, title, currency)
    _table(rows, currency)
    st.download_button(
        "Download what is shown (CSV)", as_csv(rows), file_name=f"unit-cost-{by}-{choice}-{basis}.csv", mime="text/csv"
    )


page()
