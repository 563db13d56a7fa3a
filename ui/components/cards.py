"""Headline numbers in a row; each with the line that says what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import streamlit as st

from ui.view_models.overview import Card

IN_A_ROW = 3
NARROW_PX = 240
"""Five such cards fill a 1440 px window, three an 800 px one."""


def draw_cards(cards: Sequence[Card]) -> None:
    """Cards of equal height, three in a row."""
    for start in range(0, len(cards), IN_A_ROW):
        for column, card in zip(st.columns(IN_A_ROW), cards[start : start + IN_A_ROW], strict=False):
            with column.container(border=True, height="stretch", gap="xsmall"):
                _draw(card)


def draw_narrow_cards(cards: Sequence[Card]) -> None:
    """As many cards in a row as the window holds."""
    with st.container(horizontal=True):
        for card in cards:
            with st.container(border=True, height="stretch", width=NARROW_PX, gap="xsmall"):
                _draw(card)


def _draw(card: Card) -> None:
    """A rise of a cost is drawn as bad."""
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
