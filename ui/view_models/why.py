"""What the page "Why did it change" shows, computed from the API's answer alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from ui.view_models.figures import money
from ui.view_models.overview import Card
from ui.view_models.tables import Column, Table, numbers, table

Row = Mapping[str, Any]
BY = {"deployment": "Deployment", "model": "Model", "tenant": "Tenant"}
NAMES = {
    "days": "Days in the period", "rate": "Price", "new": "New deployments", "retired": "Retired deployments",
    "currency": "Other currency", "unsplit": "Not split", "bought": "Bought tokens", "bought_rate": "Vendors' prices",
    "volume": "Volume", "mix": "Token mix", "cache": "Cache",
    "speed": "Speed", "waste": "Waste", "unattributed": "Unattributed", "idle": "Idle", "starting": "Starting",
}  # fmt: skip
UP, DOWN, WHOLE = "more", "less", "total"


def default_periods(now: datetime) -> tuple[str, str]:
    """The two whole months before the running one."""
    last = now.replace(day=1) - timedelta(days=1)
    return f"{last.replace(day=1) - timedelta(days=1):%Y-%m}", f"{last:%Y-%m}"


def why_cards(total: Row, first: str, second: str) -> list[Card]:
    """Both totals, the change, and what moved most."""
    currency, largest = total["currency"], _largest(total)
    percent = "the first period has no cost" if total["change_percent"] is None else f"{total['change_percent']} %"
    cards = [
        Card("First period", money(total["before"], currency), first),
        Card("Second period", money(total["after"], currency), second),
        Card("Change", money(total["change"], currency), percent),
    ]
    if largest is not None:
        cards.append(Card("Largest cause", money(largest["amount"], currency), NAMES[largest["effect"]]))
    return cards


def _largest(total: Row) -> Row | None:
    return max(total["effects"], key=lambda row: abs(Decimal(row["amount"])), default=None)


def waterfall_points(total: Row) -> list[dict[str, Any]]:
    """From the first total over each cause, largest first, to the second: every bar begins where the one before ended."""
    currency, at = total["currency"], Decimal(total["before"])
    points = [_point("First period", Decimal(0), at, WHOLE, money(total["before"], currency))]
    for row in _ordered(total["effects"]):
        amount = Decimal(row["amount"])
        points.append(_point(NAMES[row["effect"]], at, at + amount, UP if amount > 0 else DOWN, money(row["amount"], currency)))
        at += amount
    points.append(_point("Second period", Decimal(0), at, WHOLE, money(total["after"], currency)))
    return points


def _ordered(effects: Sequence[Row]) -> list[Row]:
    return sorted(effects, key=lambda row: (-abs(Decimal(row["amount"])), row["effect"]))


def _point(name: str, start: Decimal, end: Decimal, kind: str, shown: str) -> dict[str, Any]:
    return {"name": name, "start": float(start), "end": float(end), "kind": kind, "shown": shown}


def cause_table(total: Row) -> Table:
    """Every cause with its money and what changed."""
    rows = _ordered(total["effects"])
    return table(
        [
            (Column("Cause"), [NAMES[row["effect"]] for row in rows]),
            numbers(f"Effect, {total['currency']}", [row["amount"] for row in rows]),
            (Column("What changed"), [row["text"] for row in rows]),
        ]
    )


def mover_table(rows: Sequence[Row], by: str) -> Table:
    """Who moved, most first, in the currency of each row."""
    return table(
        [
            (Column(BY[by]), [row[by] for row in rows]),
            (Column("Currency"), [row["currency"] for row in rows]),
            numbers("First period", [row["before"] for row in rows]),
            numbers("Second period", [row["after"] for row in rows]),
            numbers("Change", [row["change"] for row in rows]),
            (Column("Largest cause"), [_mover_cause(row) for row in rows]),
        ]
    )


def _mover_cause(row: Row) -> str | None:
    name = max(row["effects"], key=lambda effect: abs(Decimal(row["effects"][effect])), default=None)
    return None if name is None else f"{NAMES[name]}: {money(row['effects'][name], row['currency'])}"
