"""Who is signed in, and the client that speaks for them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from ui.client import ApiProblem, Client
from ui.launch import read_launch

TTL_S = 10


def get_client(token: str) -> Client:
    """A client for one token. Tests put their own in its place."""
    return Client(read_launch().api_url, token)


def now() -> datetime:
    return datetime.now(UTC)


@st.cache_data(ttl=TTL_S, show_spinner="Asking the API …", max_entries=200)
def _fetch(token: str, what: str, params: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    answer: dict[str, Any] = getattr(get_client(token), what)(dict(params))
    return answer


def fetch(what: str, params: Mapping[str, str]) -> dict[str, Any] | None:
    """The answer of one read, or None after showing the person what went wrong."""
    try:
        return _fetch(st.session_state["token"], what, tuple(sorted(params.items())))
    except ApiProblem as problem:
        if problem.signed_out:
            sign_out()
            st.rerun()
        st.error(problem.message, icon=":material/error:")
        if problem.hint:
            st.caption(problem.hint)
        if st.button("Try again", key="retry"):
            st.cache_data.clear()
            st.rerun()
        return None


def signed_in() -> bool:
    """Whether a token is there; the demo signs in by itself."""
    if "token" in st.session_state:
        return True
    launch = read_launch()
    if launch.token_file is not None and launch.token_file.exists() and not st.session_state.get("signed_out"):
        st.session_state["token"] = launch.token_file.read_text().strip()
        return True
    return False


def sign_out() -> None:
    st.session_state.pop("token", None)
    st.session_state["signed_out"] = True


def sign_in_page() -> None:
    """Ask for an API token and try it."""
    st.title("Tokenfuse")
    st.write("Sign in with an API token that may read.")
    with st.form("sign_in"):
        token = st.text_input("API token", type="password", key="token_input", placeholder="tf_…")
        if not st.form_submit_button("Sign in", type="primary") or not token:
            st.caption("Make one on the server: `tokenfuse token create --name me --scope read`")
            return
    try:
        get_client(token.strip()).overview({})
    except ApiProblem as problem:
        st.error(problem.message, icon=":material/error:")
        if problem.hint:
            st.caption(problem.hint)
        return
    st.session_state["token"] = token.strip()
    st.rerun()
