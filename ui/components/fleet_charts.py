"""Charts of the Heat map and Fleet pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import streamlit as st

from ui.components.charts import TIME_AXIS

ROW_PX = 30
LINES = ("#3b82f6", "#d97706", "#0d9488", "#dc2626", "#8b5cf6", "#65a30d", "#ec4899", "#64748b")


def heat_rects(
    points: Sequence[dict[str, Any]], places: Sequence[str], labels: Sequence[str], x_title: str, measure: str
) -> None:
    """Hour by length, darker is more; a place without requests stays blank."""
    chart = (
        alt.Chart(alt.Data(values=list(points)))
        .mark_rect()
        .encode(
            x=alt.X(
                "place:N",
                title=x_title,
                sort=None,
                scale=alt.Scale(domain=list(places)),
                axis=alt.Axis(labelOverlap=True, labelAngle=0),
            ),
            y=alt.Y(
                "label:N",
                title=None,
                sort=None,
                scale=alt.Scale(domain=list(labels)),
                axis=alt.Axis(labelLimit=200, labelOverlap=False),
            ),
            color=alt.Color(
                "value:Q",
                title=measure,
                scale=alt.Scale(type="sqrt", scheme="viridis"),
                legend=alt.Legend(orient="top", format="~s", tickCount=3),
            ),
            tooltip=[
                alt.Tooltip("place:N", title=x_title),
                alt.Tooltip("label:N", title="Length"),
                alt.Tooltip("requests:N", title="Requests"),
                alt.Tooltip("tokens:N", title="Tokens"),
                alt.Tooltip("share:N", title=f"Of all {measure.lower()}"),
            ],
        )
        .properties(height=100 + ROW_PX * len(labels))
    )
    st.altair_chart(chart, width="stretch", alt=f"{measure} by {x_title.lower()} and length")


def figure_lines(points: Sequence[dict[str, Any]], title: str, *, share: bool) -> None:
    """One figure over time, a line per deployment; a gap is a time without the figure."""
    axis = alt.Axis(format="%") if share else alt.Axis()
    chart = (
        alt.Chart(alt.Data(values=list(points)))
        .mark_line(point=alt.OverlayMarkDef(size=24), interpolate="step-after")
        .encode(
            x=alt.X("at:T", title="Time, UTC", scale=alt.Scale(type="utc"), axis=TIME_AXIS),
            y=alt.Y("value:Q", title=title, axis=axis, scale=alt.Scale(zero=True)),
            color=alt.Color(
                "deployment:N",
                title=None,
                scale=alt.Scale(range=list(LINES)),
                legend=alt.Legend(orient="top", labelLimit=320, columns=2),
            ),
            tooltip=[
                alt.Tooltip("from:N", title="From"),
                alt.Tooltip("deployment:N", title="Deployment"),
                alt.Tooltip("shown:N", title=title),
                alt.Tooltip("why:N", title="Note"),
            ],
        )
        .properties(height=340)
    )
    st.altair_chart(chart, width="stretch", alt=f"{title} over time by deployment")
