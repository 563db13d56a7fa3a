"""Waterfalls: bars that lead from one total to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import streamlit as st

from ui.view_models.why import DOWN, UP, WHOLE

COLOURS = {WHOLE: "#64748b", UP: "#dc2626", DOWN: "#0d9488"}


def waterfall(
    points: Sequence[dict[str, Any]],
    currency: str,
    *,
    colours: Mapping[str, str] = COLOURS,
    title: str = "Cause",
    about: str = "",
) -> None:
    """Bars from one total to the other, each beginning where the one before ended; ``about`` says what for those who hear it."""
    names = [point["name"] for point in points]
    chart = (
        alt.Chart(alt.Data(values=list(points)))
        .mark_bar()
        .encode(
            y=alt.Y("name:N", title=None, sort=None, scale=alt.Scale(domain=names), axis=alt.Axis(labelLimit=240)),
            x=alt.X("start:Q", title=f"Cost, {currency}"),
            x2="end:Q",
            color=alt.Color(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=list(colours), range=list(colours.values())),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[alt.Tooltip("name:N", title=title), alt.Tooltip("shown:N", title="Money")],
        )
        .properties(height=80 + 32 * len(names))
    )
    said = about or f"From the first period's cost to the second's in {currency}, cause by cause"
    st.altair_chart(chart, width="stretch", alt=said)
