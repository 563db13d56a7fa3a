"""Tables on screen and as a file: the same cells, aligned by what they are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import streamlit as st

from ui.view_models.provenance import Unknown
from ui.view_models.tables import Cell, Column, Table, as_csv


def draw_table(shown: Table, key: str) -> None:
    """Numbers right-aligned with equal decimals; an empty cell is a dash."""
    st.dataframe(
        [{title: _drawn(cell) for title, cell in row.items()} for row in shown.rows],
        hide_index=True,
        width="stretch",
        placeholder="–",
        column_config={column.title: _config(column, first=n == 0) for n, column in enumerate(shown.columns)},
        key=key,
    )


def download(shown: Table, file_name: str) -> None:
    """Offer exactly what the table shows."""
    st.download_button(
        "Download what is shown (CSV)",
        as_csv(shown),
        file_name=file_name,
        mime="text/csv",
        on_click="ignore",
        icon=":material/download:",
        key="download",
    )


def draw_unknowns(unknowns: list[Unknown]) -> None:
    """Why numbers are missing and what would give them; nothing when none is."""
    if not unknowns:
        return
    title = f"Why {'is one number' if len(unknowns) == 1 else f'are {len(unknowns)} numbers'} unknown?"
    with st.expander(title, icon=":material/help:"):
        for item in unknowns:
            st.markdown(f"**{_escaped(item.name)}**: {_escaped(item.reason)}" + (f"  \n{item.advice}" if item.advice else ""))


def _drawn(cell: Cell) -> str | int | float | None:
    return float(cell) if isinstance(cell, Decimal) else cell


def _config(column: Column, *, first: bool) -> Any:
    about = column.help or None
    if column.kind in ("number", "count"):
        form = f"%,.{column.places}f" if column.kind == "number" else "localized"
        return st.column_config.NumberColumn(format=form, help=about, pinned=first)
    return st.column_config.TextColumn(alignment="right" if column.kind == "share" else "left", help=about, pinned=first)


def _escaped(text: str) -> str:
    return "".join(f"\\{letter}" if letter in r"\`*_{}[]()#+-.!|<>$~:" else letter for letter in text)
