"""What the pages show, computed from the API's answers: pure, tested without a browser. Only here are numbers rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

UNKNOWN = "unknown"
RANGES: Mapping[str, tuple[str, timedelta | None]] = {
    "month": ("This month", None),
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("Last 24 hours", timedelta(hours=24)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
}
STATE_WORDS = {
    "closed": "closed quarter hours",
    "estimate": "running estimate",
    "unknown": "price unknown",
    "provisional": "provisional: priced by rates, bill pending",
    "final": "final: trued up to the invoice",
}


@dataclass(frozen=True, slots=True)
class Card:
    """One headline number. ``note`` says what it rests on; ``delta`` compares with the period before."""

    label: str
    value: str
    note: str
    delta: str | None = None
    help: str = ""


def range_params(choice: str, now: datetime) -> dict[str, str]:
    """Query parameters of a time range, whole minutes so that a minute's views share a cache entry."""
    span = RANGES.get(choice, RANGES["month"])[1]
    if span is None:
        return {}
    end = now.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    return {"from": _stamp(end - span), "to": _stamp(end)}


def money(amount: str | None, currency: str | None) -> str:
    """For people: two decimals from 1 up, else four significant digits; unknown stays unknown."""
    if amount is None:
        return UNKNOWN
    value = Decimal(amount)
    if value == 0:
        text = "0.00"
    elif abs(value) >= 1:
        text = f"{value.quantize(Decimal('0.01'), ROUND_HALF_EVEN):,f}"
    else:
        places = max(2, 4 - value.adjusted() - 1)
        text = f"{value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN):f}"
    return f"{text} {currency or ''}".strip()


def percent(share: str | float | None) -> str:
    """A share as per cent with one decimal; unknown stays unknown."""
    if share is None:
        return UNKNOWN
    return f"{(Decimal(str(share)) * 100).quantize(Decimal('0.1'), ROUND_HALF_EVEN):,f} %"


def count(number: int) -> str:
    """Thousands separated up to a million, then three significant digits with M or B."""
    for size, letter in ((1_000_000_000, "B"), (1_000_000, "M")):
        if number >= size:
            return f"{number / size:.3g}{letter}" if number < 1000 * size else f"{number / size:,.0f}{letter}"
    return f"{number:,}"


def change(now: str | None, before: str | None) -> str | None:
    """Relative change in per cent, or None where either is unknown or the first is zero."""
    if now is None or before is None or Decimal(before) == 0:
        return None
    moved = (Decimal(now) - Decimal(before)) / Decimal(before) * 100
    return f"{moved.quantize(Decimal('0.1'), ROUND_HALF_EVEN):+,f} %"


def overview_cards(data: Mapping[str, Any]) -> list[Card]:
    """The headline numbers of the Overview, each with what it rests on."""
    meta, unit = data["meta"], data["unit_cost_per_mtok"]
    currency = meta.get("currency")
    return [
        Card(
            "Spend",
            money(data["spend"], currency),
            data["spend_reason"] or basis_note(meta),
            change(data["spend"], data["spend_before"]),
            "Cost of the period so far, against the same elapsed time of the period before.",
        ),
        Card(
            f"Unit cost, {currency or ''} per million tokens".replace(",  per", ", per"),
            money(unit["now"], None),
            unit["now_reason"] or basis_note(meta),
            change(unit["now"], unit["before"]),
            "Cost of all tokens / all tokens, divided last. Compared with the period before.",
        ),
        Card("Idle share", percent(data["idle_share"]), data["idle_reason"] or "of capacity cost, closed quarter hours"),
        burn_card(data["budgets"]),
        Card(
            "Coverage",
            percent(meta.get("coverage")),
            "of engine tokens explained by usage records" if meta.get("coverage") is not None else "no engine was scraped",
            help="Gateway tokens / engine tokens. Below 100 %: work no usage record explains is shown as unattributed.",
        ),
        Card(
            "Requests",
            count(data["requests"]),
            f"{count(data['tokens_input'])} input and {count(data['tokens_output'])} output tokens",
        ),
    ]


def burn_card(budgets: Sequence[Mapping[str, Any]]) -> Card:
    """The budget that is furthest ahead of its plan."""
    known = [b for b in budgets if b["pace"] is not None]
    if not budgets:
        return Card("Budget burn", "no budget", "Set one: tokenfuse budget set --scope tenant:ORG --amount 500")
    if not known:
        return Card("Budget burn", UNKNOWN, budgets[0]["pace_reason"] or budgets[0]["spend"]["reason"])
    worst = max(known, key=lambda b: Decimal(b["pace"]))
    return Card(
        "Budget burn",
        percent(worst["spent_share"]),
        f"of {scope_name(worst['scope'])}'s {worst['period']}: {_times(worst['pace'])} the planned pace",
        help="Share of the amount spent in the running period, for the budget furthest ahead of its plan.",
    )


def budget_rows(budgets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per budget, the one furthest ahead of plan first."""
    ordered = sorted(budgets, key=lambda b: -Decimal(b["pace"] or 0))
    return [
        {
            "Budget": scope_name(b["scope"]),
            "Period": b["period"],
            "Spent": money(b["spend"]["amount"], b["currency"]),
            "Amount": money(b["amount"], b["currency"]),
            "Spent, % of amount": None if b["spent_share"] is None else float(Decimal(b["spent_share"]) * 100),
            "Pace": "" if b["pace"] is None else f"{_times(b['pace'])} plan",
            "Runs out": stamp(b["exhausted_at"]) or b["exhaustion_reason"],
            "Cap": money(b["effective_cap"], b["currency"]) if b["effective_cap"] else "none",
            "Basis": b["cost_basis"],
        }
        for b in ordered
    ]


def breaker_rows(breakers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Breakers that are not closed."""
    return [
        {
            "Scope": scope_name(b["scope"]),
            "State": b["phase"],
            "Acting": "yes" if b["enforced"] else "no (shadow)",
            "Since": stamp(b["since"]),
            "Why": b["reason"],
        }
        for b in breakers
    ]


def spend_series(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Chart points: start, cost as a float (drawn, never summed), and what the number is."""
    return [
        {"start": p["start"], "cost": float(p["cost"]), "kind": STATE_WORDS[p["state"]]}
        for p in data["series"]
        if p["cost"] is not None
    ]


def series_holes(data: Mapping[str, Any]) -> list[str]:
    """Why parts of the chart are missing."""
    return sorted({p["reason"] for p in data["series"] if p["cost"] is None and p["reason"]})


UNIT_COLUMNS: Mapping[str, str] = {
    "input_per_mtok": "Input",
    "cached_input_per_mtok": "Cached input",
    "output_per_mtok": "Output",
    "blended_per_mtok": "Blended",
    "cost_per_request": "Per request",
}


def unit_rows(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[dict[str, Any]]:
    """The table of the Unit cost page: keys, costs per million tokens as numbers (None where unknown), volumes, reason."""
    table = []
    for row in rows:
        shown: dict[str, Any] = {KEY_WORDS.get(key, key): _key(row.get(key)) for key in by}
        for field, title in UNIT_COLUMNS.items():
            value = row.get(field)
            shown[title] = None if value is None else float(value)
        shown["Cost"] = None if row.get("cost") is None else float(row["cost"])
        shown["Requests"] = row["requests"]
        shown["Input tokens"] = row["input_tokens"]
        shown["Output tokens"] = row["output_tokens"]
        shown["Note"] = row.get("reason") or ""
        table.append(shown)
    return table


KEY_WORDS: Mapping[str, str] = {
    "deployment": "Deployment", "model_id": "Model", "org": "Organisation", "team": "Team", "project": "Project", "user": "User",
    "key_id": "Key", "service_tier": "Service tier", "hour": "Hour", "day": "Day", "cluster": "Cluster", "namespace": "Namespace",
}  # fmt: skip


def basis_note(meta: Mapping[str, Any]) -> str:
    """Basis, price source and state in a few words."""
    parts = [f"{meta['basis']} basis" if meta.get("basis") else "", meta.get("price_source") or "", _state(meta.get("state"))]
    return " · ".join(part for part in parts if part)


def freshness_note(meta: Mapping[str, Any], now: datetime) -> str:
    """How far the stream has counted."""
    if not meta.get("freshness"):
        return "The stream has not counted anything yet."
    at = datetime.fromisoformat(meta["freshness"])
    seconds = max(0, round((now - at).total_seconds()))
    age = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
    return f"Counted up to {stamp(meta['freshness'])} UTC ({age} ago)."


def scope_name(scope: str) -> str:
    """``tenant:acme/search`` → ``acme / search``."""
    kind, _, rest = scope.partition(":")
    return rest.replace("/", " / ") if kind in {"tenant", "deployment"} else scope


def stamp(text: str | None) -> str:
    return "" if not text else datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _key(value: Any) -> str:
    text = "" if value is None else str(value)
    if len(text) > 18 and text[4:5] == "-" and "T" in text:
        return stamp(text)
    return text or "(none)"


def _state(state: str | None) -> str:
    return {"estimate": "estimate", "provisional": "provisional", "final": "final"}.get(state or "", state or "")


def _times(pace: str) -> str:
    return f"{Decimal(pace).quantize(Decimal('0.01'), ROUND_HALF_EVEN):f}×"


def _stamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
