"""What the numbers of a page without money rest on: one line under its title, meanings at its foot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from ui.view_models.provenance import freshness_words


def draw_span(meta: Mapping[str, Any], span: str, now: datetime) -> None:
    """The time range and how far the stream has counted."""
    st.caption(f"{span} · {freshness_words(meta, now)}")


def explain_figures(meanings: Mapping[str, str]) -> None:
    """What each figure is, for the foot of the page."""
    with st.expander("What these numbers rest on", icon=":material/info:"):
        for title, meaning in meanings.items():
            st.markdown(f"**{title}**: {meaning}.")
