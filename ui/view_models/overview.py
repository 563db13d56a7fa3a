"""What the Overview shows, computed from the API's answers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from ui.view_models.figures import UNKNOWN, change, count, money, percent, stamp, times
from ui.view_models.provenance import Unknown, scope_name, unknown
from ui.view_models.tables import Cell, Column, Table, numbers, table

POINT_WORDS: Mapping[str, str] = {
    "closed": "closed quarter hours",
    "estimate": "with a running estimate",
    "unknown": "unknown",
}
PARTS: Mapping[str, tuple[str, str]] = {
    "served": ("Served", "Work that answered requests"),
    "wasted": ("Wasted", "Work for requests that failed or were aborted"),
    "unattributed": ("Unattributed", "Engine work that no usage record explains"),
    "idle": ("Idle", "GPU time in service with nothing running"),
    "starting": ("Starting", "GPU time with no engine on it: booting, pulling, crash-looping"),
}
CLOSED_WORDS: Mapping[str, str] = {"trued_up": "priced by bills", "final": "trued up to the invoice"}
GAP_OF_STEP = 12
"""Bars end this part of a step early, so that they can be told apart."""
NOTHING_COUNTED = "no usage was metered yet: nothing is counted"
NO_BUDGET = "Set one: `tokenfuse budget set --scope tenant:ORG --period month --amount 500`"


@dataclass(frozen=True, slots=True)
class Card:
    """One headline number. ``note`` says what it rests on or why it is unknown; ``delta`` compares with ``before``."""

    label: str
    value: str
    note: str
    delta: str | None = None
    before: str = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class CostPart:
    """One part of the closed cost in one currency. ``share`` is of that currency's sum; None where the sum is zero."""

    kind: str
    name: str
    meaning: str
    amount: Decimal
    currency: str
    share: Decimal | None


def cost_parts(rows: Sequence[Mapping[str, Any]]) -> list[CostPart]:
    """Ledger lines by kind, in the order of ``PARTS``; per currency they add up to the sum exactly."""
    sums: dict[str, Decimal] = {}
    for row in rows:
        sums[row["currency"]] = sums.get(row["currency"], Decimal(0)) + Decimal(row["cost"])
    order = list(PARTS)
    ranked = sorted(rows, key=lambda row: (row["currency"], order.index(row["kind"]) if row["kind"] in PARTS else len(order)))
    return [_part(row, sums[row["currency"]]) for row in ranked]


def _part(row: Mapping[str, Any], whole: Decimal) -> CostPart:
    name, meaning = PARTS.get(row["kind"], (str(row["kind"]).capitalize(), ""))
    cost = Decimal(row["cost"])
    return CostPart(row["kind"], name, meaning, cost, row["currency"], cost / whole if whole else None)


def parts_table(parts: Sequence[CostPart], *, whole: str) -> Table:
    """The parts and, per currency, their exact sum under the name ``whole``."""
    lines: list[CostPart] = []
    for currency in dict.fromkeys(part.currency for part in parts):
        own = [part for part in parts if part.currency == currency]
        amount = sum((part.amount for part in own), Decimal(0))
        lines += [
            *own,
            CostPart("", whole, "The parts above add up to it exactly", amount, currency, Decimal(1) if amount else None),
        ]
    currencies = list(dict.fromkeys(line.currency for line in lines))
    columns: list[tuple[Column, Sequence[Cell]]] = [(Column("Part"), [line.name for line in lines])]
    if len(currencies) > 1:
        columns.append((Column("Currency"), [line.currency for line in lines]))
    columns += [
        numbers(f"Cost, {' or '.join(currencies)}", [str(line.amount) for line in lines]),
        (Column("Share", "share"), [_share(line) for line in lines]),
        (Column("What it is"), [line.meaning for line in lines]),
    ]
    return table(columns)


def _share(part: CostPart) -> str:
    return percent(None if part.share is None else str(part.share))


def overview_cards(data: Mapping[str, Any], parts: Sequence[CostPart]) -> list[Card]:
    """The headline numbers in the order an analyst asks: spent, per token, idle, against plan, how whole, how much."""
    return [_spend(data), _unit(data), _idle(data, parts), burn_card(data["budgets"]), _coverage(data["meta"]), _work(data)]


def _spend(data: Mapping[str, Any]) -> Card:
    currency, state = data["meta"].get("currency"), data["spend_state"]
    if not data["meta"].get("freshness"):
        return Card("Spend", UNKNOWN, NOTHING_COUNTED)
    closed = CLOSED_WORDS.get(data["meta"].get("state") or "", "provisional")
    so_far = "so far, the open quarter hours estimated" if state == "estimate" else f"closed quarter hours, {closed}"
    return Card(
        "Spend",
        money(data["spend"], currency),
        data["spend_reason"] or so_far,
        change(data["spend"], data["spend_before"]),
        f"from {money(data['spend_before'], currency)}",
        "Cost of the range so far, compared with as much time of the range before. "
        + (f"Before: unknown, {data['spend_before_reason']}." if data["spend_before"] is None else ""),
    )


def _unit(data: Mapping[str, Any]) -> Card:
    currency, unit = data["meta"].get("currency"), data["unit_cost_per_mtok"]
    return Card(
        "Cost per million tokens",
        money(unit["now"], currency),
        unit["now_reason"] or "blended: all cost / all tokens of closed quarter hours",
        change(unit["now"], unit["before"]),
        f"from {money(unit['before'], currency)}",
        "Input, cached input and output together, divided last; compared with as much time of the range before. "
        + (f"Before: unknown, {unit['before_reason']}." if unit["before"] is None else ""),
    )


def _idle(data: Mapping[str, Any], parts: Sequence[CostPart]) -> Card:
    idle = [part for part in parts if part.kind == "idle"]
    amounts = " and ".join(money(str(part.amount), part.currency) for part in idle)
    known = (
        f"{amounts} of the capacity cost of closed quarter hours" if amounts else "of the capacity cost of closed quarter hours"
    )
    help_ = "GPUs in service with nothing running. Room under a busy engine's best throughput is not idle."
    return Card("Idle", percent(data["idle_share"]), data["idle_reason"] or known, help=help_)


def burn_card(budgets: Sequence[Mapping[str, Any]]) -> Card:
    """The budget that is furthest ahead of its plan."""
    known = [b for b in budgets if b["pace"] is not None]
    if not budgets:
        return Card("Budget burn", "no budget", NO_BUDGET)
    if not known:
        return Card("Budget burn", UNKNOWN, budgets[0]["pace_reason"] or budgets[0]["spend"]["reason"])
    worst = max(known, key=lambda b: Decimal(b["pace"]))
    ends = f"runs out {stamp(worst['exhausted_at'])} UTC" if worst["exhausted_at"] else worst["exhaustion_reason"]
    spent = f"{money(worst['spend']['amount'], None)} of {money(worst['amount'], worst['currency'])}"
    return Card(
        "Budget burn",
        percent(worst["spent_share"]),
        f"{scope_name(worst['scope'])}: {spent} this {worst['period']}, {times(worst['pace'])} the planned pace; {ends}",
        help="Share of the amount spent in the running period, for the budget furthest ahead of its plan.",
    )


def _coverage(meta: Mapping[str, Any]) -> Card:
    known = meta.get("coverage") is not None
    note = "of the engines' tokens are explained by usage records" if known else "no engine was scraped in this range"
    help_ = "Gateway tokens / engine tokens. What no usage record explains is shown as unattributed cost."
    return Card("Coverage", percent(meta.get("coverage")), note, help=help_)


def _work(data: Mapping[str, Any]) -> Card:
    volume = f"{count(data['tokens_input'])} input and {count(data['tokens_output'])} output tokens"
    return Card("Requests", count(data["requests"]), volume, help="As metered at the gateway.")


def overview_unknowns(data: Mapping[str, Any]) -> list[Unknown]:
    """Every number of the page that is missing, once per reason."""
    unit, counted = data["unit_cost_per_mtok"], bool(data["meta"].get("freshness"))
    found = [
        ("Spend", data["spend"] if counted else None, data["spend_reason"] if counted else NOTHING_COUNTED),
        ("Cost per million tokens", unit["now"], unit["now_reason"]),
        ("Idle", data["idle_share"], data["idle_reason"]),
        ("Coverage", data["meta"].get("coverage"), "no engine was scraped in this range"),
    ]
    found += [(f"Budget of {scope_name(b['scope'])}", b["pace"], b["pace_reason"]) for b in data["budgets"]]
    return [unknown(name, reason) for name, value, reason in found if value is None]


def budget_table(budgets: Sequence[Mapping[str, Any]]) -> Table:
    """One row per budget, the one furthest ahead of plan first."""
    ordered = sorted(budgets, key=lambda b: -Decimal(b["pace"] or 0))
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("Budget"), [scope_name(b["scope"]) for b in ordered]),
        (Column("Period"), [b["period"] for b in ordered]),
        (Column("Spent", "share"), [money(b["spend"]["amount"], b["currency"]) for b in ordered]),
        (Column("Amount", "share"), [money(b["amount"], b["currency"]) for b in ordered]),
        (Column("Spent, %", "share"), [percent(b["spent_share"]) for b in ordered]),
        (Column("Planned by now, %", "share"), [percent(b["expected_share"]) for b in ordered]),
        (Column("Pace", "share", help="Spent / planned by now; above 1 is ahead of plan."), [times(b["pace"]) for b in ordered]),
        (Column("Last hour", "share", help="Its spend / what the plan expects."), [times(b["burn"]) for b in ordered]),
        (Column("Amount runs out, UTC"), [stamp(b["exhausted_at"]) or b["exhaustion_reason"] for b in ordered]),
        (Column("Cap", "share", help="The hard limit, increases in force included."), [_cap(b) for b in ordered]),
        (Column("Basis"), [b["cost_basis"] for b in ordered]),
        (Column("State"), [b["spend"]["state"] for b in ordered]),
        (Column("Note"), [_budget_note(b) for b in ordered]),
    ]  # fmt: skip
    return table(columns)


def _cap(budget: Mapping[str, Any]) -> str:
    return money(budget["effective_cap"], budget["currency"]) if budget["effective_cap"] else "none"


def _budget_note(budget: Mapping[str, Any]) -> str:
    reasons = (budget["spend"]["reason"], budget["pace_reason"], budget["burn_reason"])
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def breaker_table(breakers: Sequence[Mapping[str, Any]]) -> Table:
    """Breakers that are not closed, those that refuse first."""
    ordered = sorted(breakers, key=lambda b: (not b["refusing"], -b["tier"], b["scope"]))
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("Breaker"), [scope_name(b["scope"]) for b in ordered]),
        (Column("State"), [b["phase"] for b in ordered]),
        (Column("What it does"), [_does(b) for b in ordered]),
        (Column("Since, UTC"), [stamp(b["since"]) for b in ordered]),
        (Column("Spend at the trip", "share"), [_trip(b) for b in ordered]),
        (Column("Why"), [b["reason"] for b in ordered]),
    ]
    return table(columns)


def refusing(breakers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the scopes whose requests are refused now."""
    return [scope_name(b["scope"]) for b in breakers if b["refusing"]]


def _does(breaker: Mapping[str, Any]) -> str:
    if breaker["refusing"]:
        return "refuses requests"
    if breaker["paused_until"]:
        return f"paused until {stamp(breaker['paused_until'])} UTC"
    if breaker["held"]:
        return "held back by the blast limit"
    return "acts" if breaker["enforced"] else "shadow: decides, does not act"


def _trip(breaker: Mapping[str, Any]) -> str:
    trip = breaker["trip"]
    return "" if trip is None else f"{money(trip['spend'], None)} of cap {money(trip['cap'], trip['currency'])}"


def spend_points(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Chart points; floats are drawn, never summed. An unknown step has no cost but its reason."""
    currency = data["meta"].get("currency")
    for point in data["series"]:
        known = point["cost"] is not None
        start, end = datetime.fromisoformat(point["start"]), datetime.fromisoformat(point["end"])
        yield {
            "start": point["start"],
            "middle": (start + (end - start) / 2).isoformat(),
            "edge": (end - (end - start) / GAP_OF_STEP).isoformat(),
            "span": f"{stamp(point['start'])} to {stamp(point['end'])}",
            "cost": float(point["cost"]) if known else None,
            "shown": money(point["cost"], point["currency"] or currency),
            "kind": POINT_WORDS[point["state"] if known else "unknown"],
            "reason": point["reason"],
        }


def series_holes(data: Mapping[str, Any]) -> list[str]:
    """Why parts of the chart are missing, with how many steps each reason takes away."""
    holes: dict[str, int] = {}
    for point in data["series"]:
        if point["cost"] is None:
            holes[point["reason"]] = holes.get(point["reason"], 0) + 1
    step = data["series_step"]
    return [f"{number} {step}{'' if number == 1 else 's'} unknown: {reason}" for reason, number in holes.items()]
