"""Filters that live in the URL, so that a link reproduces a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from ui.view_models import RANGES


def choose_range(default: str = "month") -> str:
    return _choose("Time range", "range", list(RANGES), {key: words for key, (words, _) in RANGES.items()}, default)


def choose_basis() -> str:
    words = {"allocation": "Allocation (idle included)", "usage": "Usage (work only)"}
    return _choose("Cost basis", "basis", list(words), words, "allocation")


def choose_group(options: Mapping[str, str], default: str) -> str:
    return _choose("Group by", "by", list(options), options, default)


def _choose(label: str, name: str, options: Sequence[str], words: Mapping[str, str], default: str) -> str:
    given = st.query_params.get(name, default)
    if name not in st.session_state:
        st.session_state[name] = given if given in options else default
    chosen: str = st.selectbox(label, options, key=name, format_func=lambda key: words[key])
    if chosen != default or name in st.query_params:
        st.query_params[name] = chosen
    return chosen
