"""Headline numbers in a row; each with the line that says what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.view_models import Card


def draw_cards(cards: Sequence[Card], *, rising_is_bad: bool = True) -> None:
    """Up to six cards; they wrap on a narrow window."""
    columns = st.columns(3) + st.columns(3)
    for column, card in zip(columns, cards, strict=False):
        with column.container(border=True, height="stretch"):
            st.metric(
                card.label,
                card.value,
                delta=card.delta,
                delta_color="inverse" if rising_is_bad else "normal",
                help=card.help or None,
            )
            st.caption(card.note)
