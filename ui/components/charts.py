"""Charts with units on every axis and one colour per meaning, readable on light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import streamlit as st

from ui.view_models.overview import PARTS, POINT_WORDS, CostPart
from ui.view_models.unit_cost import CHART_ROWS, PER_MTOK

POINT_COLOURS = dict(zip(POINT_WORDS.values(), ("#3b82f6", "#93c5fd", "#f59e0b"), strict=True))
KIND_COLOURS = dict(zip(PER_MTOK.values(), ("#8b5cf6", "#0d9488", "#65a30d", "#d97706"), strict=True))
PART_COLOURS = dict(
    zip((name for name, _ in PARTS.values()), ("#3b82f6", "#dc2626", "#ec4899", "#94a3b8", "#64748b"), strict=True)
)
TIME_AXIS = alt.Axis(labelOverlap=True, labelFlush=True, format="%m-%d %H:%M", tickCount=8)


def spend_bars(points: Sequence[dict[str, Any]], currency: str, step: str) -> None:
    """Spend per hour or day of the reporting zone, drawn where it lies in UTC; an unknown step is a question mark, not a gap."""
    base = alt.Chart(alt.Data(values=list(points)))
    x = alt.X("start:T", title="Time, UTC", scale=alt.Scale(type="utc"), axis=TIME_AXIS)
    y = alt.Y("cost:Q", title=f"Cost, {currency} per {step}")
    tooltip = [
        alt.Tooltip("span:N", title="UTC"),
        alt.Tooltip("shown:N", title="Cost"),
        alt.Tooltip("kind:N", title="What"),
        alt.Tooltip("reason:N", title="Note"),
    ]
    colour = _colour(POINT_COLOURS)
    bars = base.mark_bar().encode(x=x, x2="edge:T", y=y, y2=alt.datum(0), color=colour, tooltip=tooltip)
    holes = base.transform_filter("datum.cost === null").mark_text(text="?", baseline="bottom", fontSize=20, fontWeight="bold")
    marks = holes.encode(x="middle:T", y=alt.datum(0), color=colour, tooltip=tooltip)
    st.altair_chart((bars + marks).properties(height=300), width="stretch", alt=f"Cost in {currency} per {step} over time")


def parts_bar(parts: Sequence[CostPart]) -> None:
    """One bar per currency, cut into the parts of its capacity cost."""
    order = [name for name, _ in PARTS.values()]
    values = [
        {"currency": p.currency, "part": p.name, "cost": float(p.amount), "rank": order.index(p.name) if p.name in order else 9}
        for p in parts
    ]
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_bar(size=28)
        .encode(
            x=alt.X("cost:Q", title="Cost in closed quarter hours", stack="zero"),
            y=alt.Y("currency:N", title=None),
            color=_colour(PART_COLOURS, "part"),
            order=alt.Order("rank:Q"),
            tooltip=[alt.Tooltip("part:N", title="Part"), alt.Tooltip("cost:Q", title="Cost", format=",.4f")],
        )
        .properties(height=130 + 40 * len({p.currency for p in parts}))
    )
    st.altair_chart(chart, width="stretch", alt="Parts of the cost of closed quarter hours")


def unit_cost_bars(points: Sequence[dict[str, Any]], title: str, unit: str) -> None:
    """Blended unit cost of the largest groups, dearest first."""
    shown = [point for point in points if point["kind"] == "Blended" and point["cost"] is not None][:CHART_ROWS]
    chart = (
        alt.Chart(alt.Data(values=shown))
        .mark_bar(color=KIND_COLOURS["Blended"])
        .encode(
            y=alt.Y("key:N", sort="-x", title=None, axis=alt.Axis(labelLimit=220, labelOverlap=False)),
            x=alt.X("cost:Q", title=f"Blended cost, {unit} per million tokens"),
            tooltip=[
                alt.Tooltip("key:N", title=title),
                alt.Tooltip("shown:N", title="Blended, per million tokens"),
                alt.Tooltip("whole:N", title="Cost of the group"),
            ],
        )
        .properties(height=90 + 30 * len(shown))
    )
    st.altair_chart(chart, width="stretch", alt=f"Blended cost per million tokens by {title}")


def unit_cost_lines(points: Sequence[dict[str, Any]], unit: str) -> None:
    """Unit cost by kind over time; a gap in a line is a time without a defined unit cost."""
    chart = (
        alt.Chart(alt.Data(values=list(points)))
        .mark_line(point=alt.OverlayMarkDef(size=30), interpolate="step-after")
        .encode(
            x=alt.X("key:T", title="Time, UTC", scale=alt.Scale(type="utc"), axis=TIME_AXIS),
            y=alt.Y("cost:Q", title=f"{unit} per million tokens"),
            color=_colour(KIND_COLOURS),
            tooltip=[
                alt.Tooltip("name:N", title="From, UTC"),
                alt.Tooltip("kind:N", title="Kind"),
                alt.Tooltip("shown:N", title="Per million tokens"),
            ],
        )
        .properties(height=340)
    )
    st.altair_chart(chart, width="stretch", alt="Cost per million tokens over time")


def _colour(colours: dict[str, str], field: str = "kind") -> alt.Color:
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=alt.Legend(orient="top", labelLimit=260))
