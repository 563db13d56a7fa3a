"""Filters that live in the URL, so that a link reproduces a view; the browser's back button works too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import streamlit as st

from core.errors import BadInput
from core.windows import Window
from ui.view_models import ranges
from ui.view_models.provenance import BASIS_WORDS


def choose_range(default: str, now: datetime) -> Window | None:
    """The chosen window; None is the API's running month of the reporting zone. A wrong typed range ends the page."""
    choice = _choose("Time range", "range", ranges.RANGES, default)
    if choice == ranges.CUSTOM:
        return _typed(now)
    for name in ("from", "to"):
        st.query_params.pop(name, None)
    return None if choice == ranges.MONTH else ranges.last(choice, now)


def choose_basis() -> str:
    return _choose("Cost basis", "basis", BASIS_WORDS, "allocation")


def choose_group(options: Mapping[str, str], default: str) -> str:
    return _choose("Group by", "by", options, default)


def choose_one(label: str, name: str, words: Mapping[str, str], default: str) -> str:
    """One of ``words``; ``name`` is its place in the URL."""
    return _choose(label, name, words, default)


def type_period(label: str, name: str, default: str) -> str:
    """A month, week, day or START..END as the API reads it; ``name`` is its place in the URL."""
    _from_url(name, default)
    about = "A month 2026-06, an ISO week 2026-W23, a day 2026-06-01, or START..END"
    text = st.text_input(label, key=name, max_chars=90, help=about).strip() or default
    _to_url(name, text)
    return text


def _typed(now: datetime) -> Window:
    week_ago = (now - timedelta(days=7)).strftime("%Y-%m-%d 00:00")
    _from_url("from", week_ago)
    _from_url("to", now.strftime("%Y-%m-%d %H:%M"))
    first, second = st.columns(2)
    start = first.text_input("From (UTC, included)", key="from", placeholder="2026-11-01 00:00", max_chars=40)
    end = second.text_input("To (UTC, excluded)", key="to", placeholder="2026-12-01 00:00", max_chars=40)
    _to_url("from", start)
    _to_url("to", end)
    try:
        return ranges.typed(start, end, now)
    except BadInput as error:
        st.error(str(error), icon=":material/event_busy:")
        st.stop()


def _choose(label: str, name: str, words: Mapping[str, str], default: str) -> str:
    _from_url(name, default)
    options: Sequence[str] = list(words)
    if st.session_state[name] not in words:
        st.warning(
            f"This link asks for {name} = {st.session_state[name]!r}, which is not known. Shown instead: {words[default]}."
        )
        st.session_state[name] = default
    chosen: str = st.selectbox(label, options, key=name, format_func=lambda key: words[key])
    _to_url(name, chosen)
    return chosen


def _from_url(name: str, default: str) -> None:
    """Take the URL's value when it changed outside (a link, the back button), else what was chosen before on any page.

    Set on every run: a widget of the same key on another page would begin with its first option.
    """
    given, written = st.query_params.get(name), st.session_state.get(f"{name}.written")
    if given is not None and given != written:
        st.session_state[name] = given
    else:
        st.session_state[name] = st.session_state.get(name, written or default)


def _to_url(name: str, value: str) -> None:
    st.session_state[f"{name}.written"] = value
    if st.query_params.get(name) != value:
        st.query_params[name] = value
