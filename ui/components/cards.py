"""Headline numbers in a row; each with the line that says what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import streamlit as st

from ui.view_models.overview import Card

MOST_IN_A_ROW = 3


def draw_cards(cards: Sequence[Card], in_a_row: int = MOST_IN_A_ROW) -> None:
    """Cards of equal height; a rise of a cost is drawn as bad."""
    for start in range(0, len(cards), in_a_row):
        for column, card in zip(st.columns(in_a_row), cards[start : start + in_a_row], strict=False):
            with column.container(border=True, height="stretch", gap="xsmall"):
                _draw(card)


def _draw(card: Card) -> None:
    flat = card.delta is None or card.delta.lstrip("+-") == "0.0 %"
    colour: Literal["off", "inverse"] = "off" if flat else "inverse"
    st.metric(
        card.label,
        card.value,
        delta=card.delta,
        delta_color=colour,
        delta_arrow="off" if flat else "auto",
        delta_description=card.before if card.delta else None,
        help=card.help or None,
    )
    st.caption(card.note)
