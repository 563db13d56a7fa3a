"""What the Unit cost page shows, computed from the API's answers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from ui.view_models.figures import change, change_percent, money, percent, stamp
from ui.view_models.overview import Card
from ui.view_models.provenance import Unknown, unknown
from ui.view_models.tables import Cell, Column, Table, numbers, table

PER_MTOK: Mapping[str, str] = {
    "blended_per_mtok": "Blended",
    "input_per_mtok": "Input",
    "input_cached_per_mtok": "Cached input",
    "output_per_mtok": "Output",
}
COSTS: Mapping[str, str] = {**PER_MTOK, "per_request": "Per request", "cost": "Cost"}
GROUPS: Mapping[str, str] = {
    "deployment": "Deployment", "model_id": "Model", "org": "Organisation", "team": "Team", "project": "Project", "user": "User",
    "key_id": "Key", "service_tier": "Service tier", "quarter_hour": "Quarter hour", "hour": "Hour", "day": "Day",
}  # fmt: skip
TIME_GROUPS = ("quarter_hour", "hour", "day")
NO_NAME = "(unnamed or unattributed)"
CHART_ROWS, KEY_SHOWN = 20, 12

Row = Mapping[str, Any]


def ordered(rows: Sequence[Row], by: str) -> list[Row]:
    """Times in order; else the largest cost first, rows without a price before all: they need somebody."""
    if by in TIME_GROUPS:
        return sorted(rows, key=lambda row: (str(row[by]), row["currency"]))
    return sorted(rows, key=lambda row: (row["cost"] is not None, -Decimal(row["cost"] or 0), str(row[by])))


def key_words(row: Row, by: str) -> str:
    """The group's name; times in UTC; a key by what its gateway calls it, with the beginning of its id."""
    value = row.get(by)
    if by == "key_id" and value and row.get("key_alias"):
        return f"{row['key_alias']} ({shortened(value)})"
    if by in TIME_GROUPS:
        return stamp(value)
    return str(value) if value not in (None, "") else NO_NAME


def shortened(key_id: str) -> str:
    """Enough of an id to tell keys of one name apart."""
    return key_id if len(key_id) <= KEY_SHOWN else f"{key_id[:KEY_SHOWN]}…"


def unit_table(rows: Sequence[Row], by: str, before: Sequence[Row]) -> Table:
    """One row per group and currency, already ordered. Costs are exact decimals rounded once; ``before`` joins by name."""
    currencies = sorted({row["currency"] for row in rows})
    unit = currencies[0] if len(currencies) == 1 else ""
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column(f"{GROUPS[by]}{', UTC' if by in TIME_GROUPS else ''}"), [key_words(r, by) for r in rows])
    ]
    if len(currencies) > 1:
        columns.append((Column("Currency"), [row["currency"] for row in rows]))
    per_mtok = f"{unit or 'Currency'} per million tokens"
    for field, name in PER_MTOK.items():
        columns.append(numbers(f"{name}, {unit}/MTok", [row[field] for row in rows], per_mtok))
        if field == "blended_per_mtok" and by not in TIME_GROUPS:
            columns += _compared(rows, by, before)
    columns.append(numbers(f"Per request, {unit}".rstrip(", "), [row["per_request"] for row in rows], "All cost / all requests"))
    columns.append(numbers(f"Cost, {unit}".rstrip(", "), [row["cost"] for row in rows], "What the group bears on this basis"))
    without = "Part of the cost from quarter hours without work: in Blended and Per request, in no kind's price"
    columns.append(
        numbers(f"Cost without tokens, {unit}".rstrip(", "), [row.get("cost_without_tokens") for row in rows], without)
    )
    return table(columns + _volumes(rows) + _sources(rows))


def _compared(rows: Sequence[Row], by: str, before: Sequence[Row]) -> list[tuple[Column, Sequence[Cell]]]:
    past = {(row.get(by), row["currency"]): row["blended_per_mtok"] for row in before}
    then = [past.get((row.get(by), row["currency"])) for row in rows]
    moved = [change_percent(row["blended_per_mtok"], old) for row, old in zip(rows, then, strict=True)]
    return [
        (Column("Change, %", "number", 1, "Blended cost against as much time directly before; empty: no such cost then"), moved)
    ]


def _volumes(rows: Sequence[Row]) -> list[tuple[Column, Sequence[Cell]]]:
    names = {"input": "Input tokens", "input_cached": "Cached input tokens", "output": "Output tokens"}
    return [
        (Column("Requests", "count"), [row["requests"] for row in rows]),
        *((Column(title, "count"), [row["tokens"][kind] for row in rows]) for kind, title in names.items()),
    ]


def _sources(rows: Sequence[Row]) -> list[tuple[Column, Sequence[Cell]]]:
    return [
        (Column("Coverage", "share"), [percent(row["meta"].get("coverage")) for row in rows]),
        (Column("State"), [row["meta"].get("state") or "" for row in rows]),
        (Column("Prices"), [row["meta"].get("price_source") or "unknown" for row in rows]),
        (Column("Why a cost is empty"), [reasons_words(row["reasons"]) for row in rows]),
    ]


def reasons_words(reasons: Mapping[str, str]) -> str:
    """Each reason once, with the costs it empties."""
    fields: dict[str, list[str]] = {}
    for field, reason in reasons.items():
        fields.setdefault(_plain(reason), []).append(COSTS.get(field, field))
    parts = [f"{'all costs' if len(names) == len(COSTS) else ', '.join(names)}: {reason}" for reason, names in fields.items()]
    return "; ".join(parts)


def _plain(reason: str) -> str:
    return reason.replace("input_cached", "cached input")


def unit_cards(totals: Sequence[Row], before: Sequence[Row]) -> list[Card]:
    """The whole's unit costs, per currency, each compared with as much time directly before."""
    past = {row["currency"]: row for row in before}
    cards = []
    for row in totals:
        several = f" ({row['currency']})" if len(totals) > 1 else ""
        for field, name in {**PER_MTOK, "per_request": "Per request"}.items():
            old = past.get(row["currency"], {}).get(field)
            unit = "all cost / all requests" if field == "per_request" else "per million tokens"
            note = unit if row[field] is not None else _plain(row["reasons"].get(field, ""))
            label = f"{name}{several}"
            cards.append(
                Card(
                    label,
                    money(row[field], row["currency"]),
                    note,
                    change(row[field], old),
                    f"from {money(old, row['currency'])}",
                )
            )
    return cards


def unit_unknowns(rows: Sequence[Row], by: str) -> list[Unknown]:
    """Groups without any price."""
    return [unknown(key_words(row, by), row["reasons"].get("cost", "")) for row in rows if row["cost"] is None]


def unit_points(rows: Sequence[Row], by: str) -> list[dict[str, Any]]:
    """Chart points, one per row and kind of cost; None leaves a gap. Floats are drawn, never summed."""
    return [
        {
            "key": row[by] if by in TIME_GROUPS else key_words(row, by),
            "name": key_words(row, by),
            "kind": name,
            "cost": None if row[field] is None else float(row[field]),
            "shown": money(row[field], row["currency"]),
            "whole": money(row["cost"], row["currency"]),
        }
        for row in rows
        for field, name in PER_MTOK.items()
    ]
