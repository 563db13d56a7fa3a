"""Who is signed in, and the reads that speak for them. The token lives in this browser session's memory alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import streamlit as st

from ui.client import ApiProblem, Client, connect
from ui.launch import read_launch

TTL_S = 10
TOKEN_FORM = re.compile(r"tf_[!-~]+")
MAKE_ONE = "Make one on the server: `tokenfuse token create --name me --scope read`"


@st.cache_resource(show_spinner=False)
def _connections(api_url: str) -> httpx.Client:
    return connect(api_url)


def get_client(token: str) -> Client:
    """A client for one token. Tests put their own in its place."""
    return Client(_connections(read_launch().api_url), token)


def now() -> datetime:
    return datetime.now(UTC)


@st.cache_data(ttl=TTL_S, show_spinner="Asking the API …", max_entries=200)
def _fetch(token: str, what: str, params: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    answer: dict[str, Any] = getattr(get_client(token), what)(dict(params))
    return answer


def fetch(what: str, params: Mapping[str, str]) -> dict[str, Any]:
    """The answer of one read, at most ``TTL_S`` old. Where there is none the person is told why and the page ends here."""
    try:
        return _fetch(st.session_state["token"], what, tuple(sorted(params.items())))
    except ApiProblem as problem:
        if problem.signed_out:
            sign_out()
            st.session_state["sign_in_notice"] = "You were signed out: the token expired or was revoked. Sign in again."
            st.rerun()
        show_problem(problem)
        st.button("Try again", key="retry", on_click=st.cache_data.clear)
        st.stop()


def show_problem(problem: ApiProblem) -> None:
    """What went wrong and what to do about it."""
    st.error(f"{problem.message}\n\n{problem.hint}".strip(), icon=":material/error:")


def signed_in() -> bool:
    """Whether a token is there; the demo signs in by itself until somebody signs out."""
    if "token" in st.session_state:
        return True
    token = _token_of(read_launch().token_file)
    if token and not st.session_state.get("signed_out"):
        st.session_state["token"] = token
        return True
    return False


def _token_of(file: Path | None) -> str:
    try:
        return file.read_text().strip() if file is not None else ""
    except OSError:
        return ""


def sign_out() -> None:
    """Forget the token and what it read."""
    st.session_state.pop("token", None)
    st.session_state["signed_out"] = True


def sign_in_page() -> None:
    """Ask for an API token and try it; the address, and with it the view, stays."""
    _, middle, _ = st.columns([1, 2, 1])
    with middle:
        st.title("Tokenfuse")
        st.write("What a self-hosted token really costs, who spent it, and what was done about it.")
        if notice := st.session_state.pop("sign_in_notice", ""):
            st.warning(notice, icon=":material/lock:")
        with st.form("sign_in"):
            token = st.text_input("API token", type="password", key="token_input", placeholder="tf_…", autocomplete="off").strip()
            sent = st.form_submit_button("Sign in", type="primary")
        st.caption(MAKE_ONE)
        if sent:
            _sign_in(token)


def _sign_in(token: str) -> None:
    if not TOKEN_FORM.fullmatch(token):
        st.error("That is not a token: it begins with tf_ and holds no blanks.", icon=":material/error:")
        return
    try:
        get_client(token).overview({})
    except ApiProblem as problem:
        show_problem(problem)
        return
    st.session_state["token"] = token
    st.rerun()
