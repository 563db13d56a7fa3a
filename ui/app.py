"""The web pages: navigation and sign-in, nothing else."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ui.components.session import sign_in_page, signed_in
from ui.launch import read_launch

HERE = Path(__file__).parent
DEMO = "Demo: a month of history and its bills, generated from published figures; the last 19 minutes record a real vLLM."

st.set_page_config(page_title="Tokenfuse", page_icon=str(HERE / "icon.png"), layout="wide")


def _navigate() -> None:
    inside = signed_in()
    page = st.navigation(
        {
            "": [
                st.Page(HERE / "views" / "overview.py", title="Overview", icon=":material/dashboard:", default=True),
                st.Page(HERE / "views" / "unit_cost.py", title="Unit cost", icon=":material/paid:"),
                st.Page(HERE / "views" / "why.py", title="Why did it change", icon=":material/waterfall_chart:"),
                st.Page(HERE / "views" / "reconciliation.py", title="Reconciliation", icon=":material/receipt_long:"),
                st.Page(HERE / "views" / "own_or_bought.py", title="Own or bought", icon=":material/balance:"),
                st.Page(HERE / "views" / "fleet.py", title="Fleet", icon=":material/memory:"),
                st.Page(HERE / "views" / "heat_map.py", title="Heat map", icon=":material/grid_on:"),
                st.Page(HERE / "views" / "data_quality.py", title="Data quality", icon=":material/fact_check:"),
            ],
            "Settings": [
                st.Page(HERE / "views" / "settings_tenants.py", title="Tenants and identity rules", icon=":material/badge:"),
            ],
        },
        position="top" if inside else "hidden",
    )
    if not inside:
        sign_in_page()
        return
    if read_launch().demo:
        st.info(DEMO, icon=":material/science:")
    page.run()


_navigate()
