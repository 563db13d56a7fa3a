"""What the Fleet page shows, computed from the API's answers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

from core.efficiency import FIGURES
from core.windows import Window
from ui.view_models.figures import UNKNOWN, percent, rounded, stamp
from ui.view_models.overview import Card
from ui.view_models.provenance import Unknown
from ui.view_models.tables import Cell, Column, Table, table

Row = Mapping[str, Any]
Kind = Literal["share", "number", "count"]


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    unit: str
    kind: Kind
    places: int = 1


WORDS: Mapping[str, Figure] = {
    "kv_use": Figure("KV cache in use", "", "share"),
    "kv_use_max": Figure("KV cache, fullest engine", "", "share"),
    "hit_rate": Figure("Prefix cache hits", "", "share"),
    "busy_share": Figure("Time with requests running", "", "share"),
    "batch_gap": Figure("Batch gap: idle / busy time", "", "number", 2),
    "running_mean": Figure("Requests running per engine", "requests", "number"),
    "waiting_mean": Figure("Requests waiting per engine", "requests", "number"),
    "saturated_share": Figure("Time with requests waiting", "", "share"),
    "tokens_per_step": Figure("Tokens per step", "tokens", "number", 0),
    "batch_efficiency": Figure("Batch efficiency", "", "share"),
    "queue_s": Figure("Wait of a request", "s", "number", 2),
    "prefill_s": Figure("Prefill", "request-seconds", "number"),
    "decode_s": Figure("Decode", "request-seconds", "number"),
    "prefill_ms_per_token": Figure("Prefill per computed token", "ms", "number", 3),
    "decode_ms_per_token": Figure("Decode per token", "ms", "number"),
    "output_tokens_per_busy_s": Figure("Output per busy second", "tokens", "number"),
    "memory_share": Figure("GPU memory in use", "", "share"),
    "fragmentation": Figure("Memory fragmentation", "", "share"),
    "memory_growth_mib_h": Figure("Memory growth at equal load", "MiB/h", "number"),
    "power_w": Figure("Power of a GPU", "W", "number", 0),
    "preemptions": Figure("Preemptions", "", "count"),
    "gap_s": Figure("Time without a page", "s", "number", 0),
}
CARDS = ("kv_use", "busy_share", "hit_rate", "decode_ms_per_token", "running_mean", "power_w")
ALL = "all"


def step_for(window: Window) -> str:
    """As fine as some hundred points allow."""
    if window.duration <= timedelta(hours=6):
        return "minute"
    return "hour" if window.duration <= timedelta(days=8) else "day"


def figure_words(row: Row, name: str) -> str:
    """The figure with its unit, or unknown."""
    value, about = row[name], WORDS[name]
    if value is None:
        return UNKNOWN
    if about.kind == "share":
        return percent(value)
    shown = f"{rounded(Decimal(str(value)), 0 if about.kind == 'count' else about.places):,f}"
    return f"{shown} {about.unit}".strip()


def fleet_cards(row: Row) -> list[Card]:
    """The chosen deployment's headline figures over the whole time range."""
    return [
        Card(WORDS[name].title, figure_words(row, name), row["reasons"].get(name) or row["notes"].get(name) or FIGURES[name])
        for name in CARDS
    ]


def fleet_table(rows: Sequence[Row]) -> Table:
    """One row per deployment over the whole time range, every figure."""
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("Deployment"), [row["deployment"] for row in rows]),
        (Column("Engines", "count"), [row["engines"] for row in rows]),
    ]
    columns += [_column(rows, name, about) for name, about in WORDS.items()]
    columns.append(
        (Column("Less sure"), ["; ".join(f"{WORDS[n].title}: {why}" for n, why in row["notes"].items()) for row in rows])
    )
    return table(columns)


def _column(rows: Sequence[Row], name: str, about: Figure) -> tuple[Column, Sequence[Cell]]:
    values = [row[name] for row in rows]
    title = f"{about.title}, {about.unit}".rstrip(", ")
    if about.kind == "share":
        return Column(title, "share", 0, FIGURES[name]), [None if v is None else percent(v) for v in values]
    if about.kind == "count":
        return Column(title, "count", 0, FIGURES[name]), [None if v is None else round(v) for v in values]
    exact = [None if v is None else rounded(Decimal(str(v)), about.places) for v in values]
    return Column(title, "number", about.places, FIGURES[name]), exact


def figure_points(rows: Sequence[Row], step: str, name: str) -> list[dict[str, Any]]:
    """One point a step and deployment; an unknown value leaves a gap in its line and says why."""
    return [
        {
            "at": row[step],
            "from": stamp(row[step]) if step != "day" else row[step],
            "deployment": row["deployment"],
            "value": row[name],
            "shown": figure_words(row, name),
            "why": row["reasons"].get(name) or row["notes"].get(name) or "",
        }
        for row in rows
    ]


def fleet_unknowns(row: Row) -> list[Unknown]:
    """Figures that are not there, with what would give them."""
    return [Unknown(WORDS[name].title, reason, _advice(name, reason)) for name, reason in row["reasons"].items()]


def _advice(name: str, reason: str) -> str:
    if name in ("memory_share", "power_w"):
        return "Let Tokenfuse read the GPU exporter (DCGM) of these nodes."
    if "deploy/engine_plugin" in reason:
        return "Install the plugin in the engine's environment; its README says how."
    if "equal load" in reason or "whole time range" in reason:
        return "Choose a time range with more hours of like load."
    if "max_num_batched_tokens" in reason:
        return "`tokenfuse doctor fleet` reads it where the engine tells."
    if "nothing ran" in reason or "finished" in reason:
        return "Nothing was served there in this time; choose a longer range."
    if "no engine page" in reason:
        return "Name the engines in the settings; `tokenfuse doctor fleet` says which do not answer."
    return "Newer engines tell it; see `tokenfuse doctor fleet`."
