"""What the page "Own or bought" shows, computed from the API's answers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from ui.view_models.figures import UNKNOWN, count, money, percent, stamp, times
from ui.view_models.overview import Card
from ui.view_models.provenance import Unknown
from ui.view_models.tables import Column, Table, numbers, table

Row = Mapping[str, Any]
BY = {"model": "Model", "tenant": "Tenant and model"}
BARS = {"own_allocation": "Own, idle time borne", "own_usage": "Own, while busy", "bought": "Bought at list price"}
CHART_ROWS = 12
"""Rows drawn: those with the most own cost."""
NEVER = "never at this price"
NOT_TOLD = "not told"


def name_of(row: Row) -> str:
    """A row in one line: tenant, model, and what it stands beside."""
    own = f"{row['tenant']}, {row['model']}" if row.get("tenant") else str(row["model"])
    return f"{own} ↔ {row['against']}" if row["against"] else own


def largest(rows: Sequence[Row]) -> list[Row]:
    """By own cost, most first."""
    return sorted(rows, key=lambda row: -Decimal(row["own_cost"]))


def bars(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One point per row and figure; an unknown one has no bar. ``currency`` says in which unit its length is."""
    found: list[dict[str, Any]] = []
    for row in largest(rows)[:CHART_ROWS]:
        for name, words in BARS.items():
            unit = row["bought_currency"] if name == "bought" else row["currency"]
            if row[name] is not None:
                found.append(
                    {
                        "row": name_of(row),
                        "what": words,
                        "cost": float(row[name]),
                        "shown": money(row[name], unit),
                        "currency": unit,
                    }
                )
    return found


def cards(rows: Sequence[Row]) -> list[Card]:
    """Of the row with the most own cost that is compared with a vendor."""
    compared = [row for row in largest(rows) if row["bought"] is not None]
    if not compared:
        return []
    row = compared[0]
    return [
        Card("Own, a million tokens", money(row["own_allocation"], row["currency"]), f"{row['model']}, idle time borne"),
        Card("Bought, a million tokens", money(row["bought"], row["bought_currency"]), str(row["against"])),
        Card("Own against bought", times(row["times"]), row["verdict"]),
        Card("Break-even use", break_even(row), f"use now: {percent(row['utilisation'])}"),
    ]


def break_even(row: Row) -> str:
    """The share of busy time from which on own costs no more."""
    if row["break_even"] is None:
        return UNKNOWN
    return NEVER if Decimal(row["break_even"]) > 1 else percent(row["break_even"])


def compare_table(rows: Sequence[Row], by: str) -> Table:
    """Every row, in the currency of each."""
    tenant = [(Column("Tenant"), [row["tenant"] for row in rows])] if by == "tenant" else []
    return table(
        [
            *tenant,
            (Column("Model"), [row["model"] for row in rows]),
            (Column("Beside"), [row["against"] or NOT_TOLD for row in rows]),
            (Column("Currency"), [row["currency"] for row in rows]),
            (Column("Tokens", "count"), [sum(row["tokens"].values()) for row in rows]),
            numbers("Own per million, idle borne", [row["own_allocation"] for row in rows]),
            numbers("Own per million, while busy", [row["own_usage"] for row in rows]),
            numbers("Bought per million", [row["bought"] for row in rows], "In the currency of the price list"),
            (Column("Use", "share"), [percent(row["utilisation"]) for row in rows]),
            (Column("Break-even use", "share"), [break_even(row) for row in rows]),
            (Column("Says"), [row["verdict"] for row in rows]),
            (Column("Price list"), [row["price_list"] for row in rows]),
        ]
    )


def unknowns(rows: Sequence[Row]) -> list[Unknown]:
    """Why figures are missing, each reason once a row."""
    return [
        Unknown(name_of(row), "; ".join(dict.fromkeys(row["reasons"].values())), row["hint"]) for row in rows if row["reasons"]
    ]  # fmt: skip


def hardware_table(rows: Sequence[Row]) -> Table:
    """Measured pairs with their numbers, the others with their reason."""
    return table(
        [
            (Column("Model"), [row["model"] for row in rows]),
            (Column("GPU type"), [row["gpu_type"] for row in rows]),
            numbers("Tokens a second and GPU, while busy", [row["tokens_per_gpu_s"] for row in rows]),
            (Column("Use", "share"), [percent(row["utilisation"]) if row["utilisation"] else None for row in rows]),
            (Column("Currency"), [row["currency"] for row in rows]),
            numbers("GPU-hour", [row["gpu_hour"] for row in rows]),
            numbers("Per million at this use", [row["per_mtok_at_use"] for row in rows]),
            numbers("Per million if never idle", [row["per_mtok_full"] for row in rows]),
            (Column("Note"), [row["reason"] or row["price_source"] for row in rows]),
        ]
    )


def field_table(rows: Sequence[Row]) -> Table:
    """The field's formulas: estimates beside the ledger."""
    return table(
        [
            (Column("Model"), [row["model"] for row in rows]),
            (Column("GPU type"), [row["gpu_type"] for row in rows]),
            (Column("Formula"), [row["formula"] for row in rows]),
            (Column("Currency"), [row["currency"] for row in rows]),
            numbers("Per million", [row["per_mtok"] for row in rows]),
        ]
    )


def unpriced_table(rows: Sequence[Row]) -> Table:
    """Tokens no price covers, most first."""
    inputs = ("input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h")
    return table(
        [
            (Column("Vendor"), ["own engines" if row["vendor"] == "self_hosted" else row["vendor"] for row in rows]),
            (Column("Model"), [row["model"] for row in rows]),
            (Column("Requests", "count"), [row["requests"] for row in rows]),
            (Column("Input", "count"), [sum(row[name] for name in inputs) for row in rows]),
            (Column("Output", "count"), [row["output"] for row in rows]),
            (Column("First, UTC"), [stamp(row["first_at"]) for row in rows]),
            (Column("Last, UTC"), [stamp(row["last_at"]) for row in rows]),
            (Column("Why"), [row["reason"] for row in rows]),
            (Column("What would fill it"), [row["hint"] for row in rows]),
        ]
    )


def unpriced_words(answer: Row) -> str:
    """One line over the table of holes."""
    return f"{count(answer['tokens'])} tokens have no price and are in no cost."
