"""Own and bought beside each other: one group of bars a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import streamlit as st

from ui.view_models.own_or_bought import BARS

COLOURS = ("#3b82f6", "#93c5fd", "#f59e0b")


def compare_bars(points: Sequence[dict[str, Any]], currency: str) -> None:
    """Cost of a million tokens, three bars a row; rows as given."""
    rows = list(dict.fromkeys(point["row"] for point in points))
    words = list(BARS.values())
    chart = (
        alt.Chart(alt.Data(values=list(points)))
        .mark_bar()
        .encode(
            x=alt.X("cost:Q", title=f"{currency} per million tokens"),
            y=alt.Y("row:N", title=None, sort=rows, axis=alt.Axis(labelLimit=260)),
            yOffset=alt.YOffset("what:N", sort=words),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=words, range=list(COLOURS)),
                legend=alt.Legend(orient="top", columns=3),
            ),
            tooltip=[
                alt.Tooltip("row:N", title="Model"),
                alt.Tooltip("what:N", title="What"),
                alt.Tooltip("shown:N", title="Per million"),
            ],
        )
        .properties(height=130 + 60 * len(rows))
    )
    st.altair_chart(chart, width="stretch", alt=f"Own and bought cost of a million tokens in {currency}")
