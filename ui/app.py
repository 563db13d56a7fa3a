"""The web pages: navigation and sign-in, nothing else."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ui.components.session import sign_in_page, sign_out, signed_in
from ui.launch import read_launch

HERE = Path(__file__).parent

st.set_page_config(page_title="Tokenfuse", page_icon=":material/electric_bolt:", layout="wide")


def _navigate() -> None:
    if not signed_in():
        st.navigation([st.Page(sign_in_page, title="Sign in")], position="hidden").run()
        return
    page = st.navigation(
        [
            st.Page(HERE / "views" / "overview.py", title="Overview", icon=":material/dashboard:", default=True),
            st.Page(HERE / "views" / "unit_cost.py", title="Unit cost", icon=":material/paid:"),
        ]
    )
    if read_launch().demo:
        st.info(
            "Demo: the month of history is generated from published figures; the last 18 minutes are a recording.",
            icon=":material/science:",
        )
    st.sidebar.button("Sign out", on_click=sign_out, key="sign_out")
    page.run()


_navigate()
