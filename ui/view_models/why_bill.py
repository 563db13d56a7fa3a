"""The bills' part of the page "Why did it change", computed from the API's answer alone."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ui.view_models.figures import money
from ui.view_models.overview import Card
from ui.view_models.tables import Column, Table, numbers, table
from ui.view_models.why import DOWN, UP, WHOLE

Row = Mapping[str, Any]
BUCKETS = {
    "gpu": "GPU machines", "other_compute": "Other machines", "non_gpu": "Other services", "vendor_api": "Model vendors",
    "unused_commitment": "Unused commitments", "unused_reservation": "Unused reservations", "commitment_fee": "Commitment fees",
    "commitment_negation": "Commitment negation", "credit": "Credits", "refund": "Refunds", "tax": "Taxes",
    "discount": "Discounts", "correction": "Corrections of other months", "adjustment": "Adjustments", "unknown": "Unknown lines",
}  # fmt: skip
CAUSES = {
    "days": "Days in the period", "scale": "Hours of the same machines", "new": "New machines", "retired": "Retired machines",
    "coverage": "Coverage by commitments", "rate": "On-demand price", "covered_rate": "Price under a commitment",
    "unsplit": "No running time named",
}  # fmt: skip
PARTS = {
    "held": "Bills' money in closed quarter hours", "not_held": "Bills' machine money in none", "by_rates": "Priced by rates",
    "cost": "Cost in the ledger",
}  # fmt: skip


def bill_cards(total: Row, first: str, second: str) -> list[Card]:
    """What was billed, and how it changed on both bases."""
    currency, billed, effective = total["currency"], total["billed"], total["effective"]
    return [
        Card("Billed, first period", money(billed["before"], currency), first),
        Card("Billed, second period", money(billed["after"], currency), second),
        Card("Change, billed", money(billed["change"], currency), "what the invoices say"),
        Card("Change, effective", money(effective["change"], currency), "commitments spread over what they cover"),
    ]


def bill_points(total: Row) -> list[dict[str, Any]]:
    """From the first period's effective cost over each bucket, most moved first, to the second's."""
    currency, at = total["currency"], Decimal(total["effective"]["before"])
    points = [_point("First period", Decimal(0), at, WHOLE, currency)]
    moved = [row for row in total["buckets"] if Decimal(row["effective"]["change"])]
    for row in sorted(moved, key=lambda row: (-abs(Decimal(row["effective"]["change"])), row["bucket"])):
        amount = Decimal(row["effective"]["change"])
        points.append(_point(_bucket(row), at, at + amount, UP if amount > 0 else DOWN, currency, amount))
        at += amount
    points.append(_point("Second period", Decimal(0), at, WHOLE, currency))
    return points


def _point(name: str, start: Decimal, end: Decimal, kind: str, currency: str, amount: Decimal | None = None) -> dict[str, Any]:
    shown = money(str(end if amount is None else amount), currency)
    return {"name": name, "start": float(start), "end": float(end), "kind": kind, "shown": shown}


def _bucket(row: Row) -> str:
    name = str(row["bucket"])
    return BUCKETS.get(name, name)


def bucket_table(rows: list[Row], currency: str) -> Table:
    """Each bucket on both bases."""
    return table(
        [
            (Column("Bucket"), [_bucket(row) for row in rows]),
            numbers(f"Billed before, {currency}", [row["billed"]["before"] for row in rows]),
            numbers("Billed after", [row["billed"]["after"] for row in rows]),
            numbers("Effective before", [row["effective"]["before"] for row in rows]),
            numbers("Effective after", [row["effective"]["after"] for row in rows]),
            numbers("Effective change", [row["effective"]["change"] for row in rows]),
        ]
    )


def machine_table(total: Row) -> Table:
    """Causes of the change of machine time, the largest first."""
    rows = sorted(total["machine_effects"], key=lambda row: (-abs(Decimal(row["amount"])), row["effect"]))
    return table(
        [
            (Column("Cause"), [CAUSES[row["effect"]] for row in rows]),
            numbers(f"Effect, {total['currency']}", [row["amount"] for row in rows]),
            (Column("What changed"), [row["text"] for row in rows]),
        ]
    )


def ledger_table(total: Row) -> Table:
    """How the bills lead to the ledger."""
    rows = total["ledger"]
    return table(
        [
            (Column("Effective cost"), [PARTS[name] for name in PARTS]),
            numbers(f"First period, {total['currency']}", [rows[name]["before"] for name in PARTS]),
            numbers("Second period", [rows[name]["after"] for name in PARTS]),
            numbers("Change", [rows[name]["change"] for name in PARTS]),
        ]
    )
