"""What the page "Reconciliation" shows, computed from the API's answer alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from ui.view_models.figures import age, money, places_of, rounded, stamp
from ui.view_models.overview import Card
from ui.view_models.tables import Column, Table, numbers, table

Row = Mapping[str, Any]
VIEWS: Mapping[str, str] = {"invoice": "By invoice (what was billed)", "usage": "By usage (what was used, UTC months)"}
STEPS: Mapping[str, str] = {
    "invoice": "By bucket",
    "months": "By month",
    "basis": "Billed to effective",
    "machines": "Machines or not",
    "holders": "Who held the GPUs",
    "ledger": "What is closed of it",
    "lines": "What the time was",
    "tenants": "By tenant",
    "shared": "No machine's money",
}
LEAVES, ENTERS, OPEN, WHOLE, TENANT = "leaves", "enters", "open", "sum", "tenant"
STATES: Mapping[str, str] = {
    "final": "final: the invoice is issued",
    "provisional": "provisional: may change until the invoice is issued",
}
NEEDS_PAGE: Mapping[str, str] = {
    "not closed yet": "data_quality",
    "closed before this bill": "data_quality",
    "to be closed again": "data_quality",
    "closed without a price": "data_quality",
    "of it, priced by rates": "unit_cost",
}
"""The page that says more of an open part."""


@dataclass(frozen=True, slots=True)
class OpenPart:
    """Something that waits, how much it is, what to do, and the page that says more ('' for none)."""

    name: str
    amount: str
    hint: str
    page: str
    is_difference: bool


def cards(one: Row) -> list[Card]:
    """The invoice, its effective cost, what the ledger closed of it, and what is open."""
    currency, wholes = one["currency"], _wholes(one)
    open_count = sum(1 for row in one["rows"] if row["is_open"])
    invoices = sorted({number for d in one["deliveries"] for number in d["invoice_ids"]})
    named = f"invoice {', '.join(invoices)}" if one["state"] == "final" and invoices else "no invoice issued for all of it yet"
    states = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in one["ledger_states"].items())
    titles = {
        "invoice total": ("Invoice total" if one["view"] == "invoice" else "Billed for the use", named),
        "effective total": ("Effective cost", "commitments spread over what used them"),
        "machines' money": ("Machines", "effective, matched to the inventory"),
        "closed quarter hours": ("Closed quarter hours", states or "none closed"),
    }
    found = [Card(f"{title}, {currency}", money(str(wholes.get(name, 0)), ""), note) for name, (title, note) in titles.items()]
    return [*found, Card("Open parts", f"{open_count}", "each with what to do, below" if open_count else "all is settled")]


def _wholes(one: Row) -> dict[str, Decimal]:
    """Each step's whole: what its parts add up to, billed for the invoice and effective for all others."""
    sums: dict[str, Decimal] = {}
    for step in STEPS:
        parts = _parts(one, step)
        name = parts[0]["parent"] if parts else ""
        basis = "billed_cost" if name == "invoice total" else "effective_cost"
        if parts and name not in sums:
            sums[name] = sum((Decimal(row[basis] or 0) for row in parts), Decimal(0))
    return sums


CHAIN: tuple[tuple[str, str, str], ...] = (
    ("basis", "billed total", "Effective cost"),
    ("machines", "machines: ", "Machines"),
    ("holders", "held by deployments", "Held by deployments"),
    ("ledger", "closed quarter hours", "Closed quarter hours"),
)
"""Steps of the chart: what of their parts goes on, and the sum it is drawn as. Of the first it is where the chart begins."""


def waterfall_points(one: Row) -> list[dict[str, Any]]:
    """From the invoice over everything that leaves or enters to the tenants; every bar begins where the one before ended."""
    currency = one["currency"]
    at = _wholes(one).get("invoice total", Decimal(0))
    points = [_point("Invoice total", Decimal(0), at, WHOLE, currency)]
    for step, stays, title in CHAIN:
        for row in _parts(one, step):
            if row["bucket"].startswith(stays) or not Decimal(row["effective_cost"]):
                continue
            amount = Decimal(row["effective_cost"])
            moved = amount if step == "basis" else -amount
            points.append(_point(spoken(row["bucket"]), at, at + moved, _kind(row, moved), currency))
            at += moved
        points.append(_point(title, Decimal(0), at, WHOLE, currency))
    for row in _parts(one, "tenants"):
        amount = Decimal(row["effective_cost"])
        points.append(_point(f"Tenant {row['bucket']}", at, at - amount, TENANT, currency))
        at -= amount
    return points


def _parts(one: Row, step: str) -> list[Row]:
    return [row for row in one["rows"] if row["step"] == step and row["parent"]]


def _kind(row: Row, moved: Decimal) -> str:
    return OPEN if row["is_open"] else ENTERS if moved > 0 else LEAVES


def _point(name: str, start: Decimal, end: Decimal, kind: str, currency: str) -> dict[str, Any]:
    moved = abs(end - start) if kind in (WHOLE, TENANT) else end - start
    return {"name": name, "start": float(start), "end": float(end), "kind": kind, "shown": money(str(moved), currency)}


def spoken(name: str) -> str:
    """``effective less billed: commitment_fee`` is ``Basis: commitment fee``."""
    words = name.replace("effective less billed", "basis").replace("_", " ")
    words = " ".join(word.upper() if word in ("gpu", "api") else word for word in words.split(" "))
    return words[:1].upper() + words[1:]


def step_table(one: Row) -> Table:
    """Every row with its step; what rounds to nothing keeps its exact value in the note."""
    rows = [row for row in one["rows"] if row["parent"]]
    return table(
        [
            (Column("Step"), [STEPS[row["step"]] for row in rows]),
            (Column("Part"), [row["bucket"] if row["step"] == "tenants" else spoken(row["bucket"]) for row in rows]),
            numbers(f"Billed, {one['currency']}", [row["billed_cost"] for row in rows]),
            numbers(f"Effective, {one['currency']}", [row["effective_cost"] for row in rows]),
            (Column("Note"), [_note(row) for row in rows]),
        ]
    )


def _note(row: Row) -> str | None:
    amount = Decimal(row["effective_cost"] or 0)
    tiny = amount and not rounded(amount, min(4, places_of(amount)))
    exact = f"exactly {row['effective_cost']}" if tiny else ""
    return "; ".join(part for part in (row["hint"], exact) if part) or None


def open_parts(one: Row) -> list[OpenPart]:
    """What waits, faults first, then the largest."""
    waiting = sorted(
        (row for row in one["rows"] if row["is_open"]),
        key=lambda row: (not row["is_difference"], -abs(Decimal(row["effective_cost"] or 0)), row["bucket"]),
    )
    return [
        OpenPart(
            spoken(row["bucket"]), money(row["effective_cost"], one["currency"]), row["hint"], NEEDS_PAGE.get(row["bucket"], ""),
            row["is_difference"],
        )
        for row in waiting
    ]  # fmt: skip


def delivery_line(one: Row, now: datetime) -> str:
    """Which deliveries, their versions, whether they are final, and how fresh."""
    named = "; ".join(
        f"{d['export']} {d['billing_period'].removesuffix('-01')} version {d['version']}{'' if d['is_final'] else ', not final'}"
        for d in one["deliveries"]
    )
    read = f"read {stamp(one['received_at'])} UTC ({age(datetime.fromisoformat(one['received_at']), now)} ago)"
    return f"{named} · {read} · {STATES[one['state']]}"


def generated(deliveries: Sequence[Row]) -> bool:
    """Whether a bill is made up, as its report's name says."""
    return any(d["export"].startswith("generated-") for d in deliveries)
