"""Under every title: what the numbers rest on, and controls that every page has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ui.components.session import sign_out
from ui.view_models.provenance import provenance_line


def page_head(title: str) -> None:
    """The title, with refresh and sign-out beside it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.title(title, width="stretch")
        st.button("Refresh", key="refresh", icon=":material/refresh:", on_click=st.cache_data.clear)
        st.button("Sign out", key="sign_out", icon=":material/logout:", on_click=sign_out)


def draw_provenance(meta: Mapping[str, Any], span: str, now: Any) -> None:
    """One line of sources, and how each part came about on demand."""
    st.caption(f"{span} · {provenance_line(meta, now)}")
    with st.expander("What these numbers rest on", icon=":material/info:"):
        for name, value, meaning in EXPLAINED:
            shown = meta.get(value) or "not known"
            st.markdown(f"**{name}**: {shown}. {meaning}")


EXPLAINED = (
    ("Basis", "basis", "Allocation shares idle GPU time over the work and adds up to the capacity cost; usage leaves idle out."),
    ("Prices", "price_source", "Where the rates come from; a missing price is unknown, never zero."),
    ("Use", "utilisation_source", "How used and idle GPU time were told apart."),
    ("Shares", "weight_source", "How one engine's cost was shared over requests."),
    ("State", "state", "Estimate until a quarter hour closes, provisional until the invoice, then final."),
)
