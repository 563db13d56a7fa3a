"""Charts with units on every axis and one colour per meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import streamlit as st

KIND_COLOURS = {"closed quarter hours": "#2563eb", "running estimate": "#93c5fd", "price unknown": "#9ca3af"}


def spend_bars(points: Sequence[dict[str, Any]], currency: str, step: str) -> None:
    """Spend per hour or day; estimates in the lighter blue."""
    chart = (
        alt.Chart(alt.Data(values=list(points)))
        .mark_bar()
        .encode(
            x=alt.X(
                "start:T",
                title=f"Start of {step} (UTC)",
                timeUnit="utcyearmonthdatehours" if step == "hour" else "utcyearmonthdate",
            ),
            y=alt.Y("cost:Q", title=f"Cost, {currency} per {step}"),
            color=alt.Color(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=list(KIND_COLOURS), range=list(KIND_COLOURS.values())),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                alt.Tooltip("start:T", title="Start", format="%Y-%m-%d %H:%M"),
                alt.Tooltip("cost:Q", title=f"Cost, {currency}", format=",.4f"),
                alt.Tooltip("kind:N", title="What"),
            ],
        )
        .properties(height=300)
    )
    st.altair_chart(chart, width="stretch")


def unit_cost_bars(rows: Sequence[dict[str, Any]], key: str, currency: str) -> None:
    """Blended unit cost per row, dearest first."""
    shown = [row for row in rows if row["Blended"] is not None]
    chart = (
        alt.Chart(alt.Data(values=shown))
        .mark_bar(color="#2563eb")
        .encode(
            y=alt.Y(f"{key}:N", sort="-x", title=None, axis=alt.Axis(labelLimit=260)),
            x=alt.X("Blended:Q", title=f"Blended cost, {currency} per million tokens"),
            tooltip=[alt.Tooltip(f"{key}:N"), alt.Tooltip("Blended:Q", format=",.4f"), alt.Tooltip("Cost:Q", format=",.4f")],
        )
        .properties(height=max(120, 32 * len(shown)))
    )
    st.altair_chart(chart, width="stretch")


def unit_cost_lines(rows: Sequence[dict[str, Any]], key: str, currency: str) -> None:
    """Unit cost by kind over time; a gap in the line is a time without a defined unit cost."""
    kinds = {"Input": "#2563eb", "Cached input": "#0d9488", "Output": "#d97706", "Blended": "#111827"}
    values = [{"at": row[key], "kind": kind, "cost": row[kind]} for row in rows for kind in kinds]
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=len(rows) < 60)
        .encode(
            x=alt.X("at:T", title=f"{key} (UTC)"),
            y=alt.Y("cost:Q", title=f"{currency} per million tokens"),
            color=alt.Color(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=list(kinds), range=list(kinds.values())),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[alt.Tooltip("at:T", format="%Y-%m-%d %H:%M"), "kind:N", alt.Tooltip("cost:Q", format=",.4f")],
        )
        .properties(height=320)
    )
    st.altair_chart(chart, width="stretch")
