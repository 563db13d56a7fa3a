"""Under every title: what the numbers rest on, and controls that every page has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from ui.components.session import sign_out
from ui.view_models.provenance import provenance_line

STYLE = """<style>
[data-testid="stElementToolbar"] [aria-label="Download as CSV"] { display: none }
[data-testid="stMainBlockContainer"] { padding-top: 4.5rem; padding-bottom: 3rem }
[data-testid="stMetricValue"] { font-size: clamp(1.5rem, 2.5vw, 2.25rem) }
[data-testid="stMetricLabel"] p { white-space: normal }
</style>"""
"""A table's built-in download writes unrounded floats and leaves formulas live: ours stands under the table."""


def page_head(title: str) -> None:
    """The title, with refresh and sign-out beside it."""
    st.html(STYLE)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(title, width="stretch")
        st.button("Refresh", key="refresh", icon=":material/refresh:", on_click=st.cache_data.clear)
        st.button("Sign out", key="sign_out", icon=":material/logout:", on_click=sign_out)


def draw_provenance(meta: Mapping[str, Any], span: str, now: datetime) -> None:
    """One line of sources, for under the title."""
    st.caption(f"{span} · {provenance_line(meta, now)}")


def explain(meta: Mapping[str, Any]) -> None:
    """What each of the sources means, for the foot of the page."""
    with st.expander("What these numbers rest on", icon=":material/info:"):
        for name, field, meaning in EXPLAINED:
            st.markdown(f"**{name}**: {meta.get(field) or 'not known'}. {meaning}")


EXPLAINED = (
    ("Basis", "basis", "Allocation shares idle GPU time over the work and adds up to the capacity cost; usage leaves idle out."),
    ("Prices", "price_source", "Where the rates come from; a missing price is unknown, never zero."),
    ("Use", "utilisation_source", "How used and idle GPU time were told apart."),
    ("Shares", "weight_source", "How one engine's cost was shared over requests."),
    ("State", "state", "Estimate until a quarter hour closes, provisional by rates, trued up by bills, final by the invoice."),
)
