"""Answers of ``GET /v1/explain``, put through the API's own schema: the generated June of docs/explain.md's causes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from sample_answers import Kind

from api.schemas.explain import ExplainOut
from control.explain_facts import TEXTS

EFFECTS = {"volume": "8.333333333333", "cache": "31.666666666667", "idle": "60", "rate": "-20"}
MONEY = {"currency": "USD", "before": "200", "after": "280", "change": "80", "change_percent": "40.00", "reasons": {}}


def explanations(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """200 to 280 USD; ``partial`` has quarter hours without a price, ``empty`` nothing at all."""
    by = params.get("by", "deployment")
    name = {"tenant": "acme/docs", "deployment": "lab/prod/docs", "model": "docs"}[by]
    effects = [{"effect": effect, "amount": amount, "text": TEXTS[effect]} for effect, amount in EFFECTS.items()]
    total = {**MONEY, "effects": effects, "node_hours": "100", "scale": "100", "difference": "0"}
    rows = [{**MONEY, by: name, "effects": {} if by == "tenant" else EFFECTS}]
    gap = {"period": "first", "deployment": "lab/prod/new", "windows": 4, "reason": "no list rate gpu_hour for B200"}
    there = kind != "empty"
    body = {
        "first": _period(5, datetime(2026, 6, 1, tzinfo=UTC)),
        "second": _period(6, datetime(2026, 6, 20, tzinfo=UTC)),
        "totals": [total] if there else [], "prices": [], "by": by, "rows": rows if there else [], "total_rows": int(there),
        "unpriced": [gap] if kind == "partial" else [], "bill": _bill(kind),
        "bill_only": {"amount": None, "reason": "no bill imported"},
        "meta": {"basis": "allocation", "freshness": now},
    }  # fmt: skip
    answer: dict[str, Any] = ExplainOut.model_validate(body).model_dump(mode="json", exclude_unset=True, by_alias=True)
    return answer


def _bill(kind: Kind) -> dict[str, Any]:
    """``partial`` has a bill: a Savings Plan ended, and tax; the others have none."""
    days = {name: {"from": date(2026, month, 1), "to": date(2026, month + 1, 1)} for name, month in
            (("first_days", 5), ("second_days", 6))}  # fmt: skip
    if kind != "partial":
        return {"view": "invoice", **days, "reason": "no bill imported", "totals": []}
    money = {name: _amounts(before, after) for name, before, after in
             (("gpu", "1300", "3277"), ("tax", "10", "12"), ("all", "1310", "3289"), ("none", "0", "0"))}  # fmt: skip
    rows = [{"bucket": name, "billed": money[name], "effective": money[name], "text": "x"} for name in ("gpu", "tax")]
    total = {
        "currency": "USD", "billed": money["all"], "effective": money["all"], "buckets": rows,
        "machine_effects": [{"effect": "coverage", "amount": "1977", "text": "share of the hours under a commitment"}],
        "machine_types": [], "commitments": [], "bill_only": rows[1:], "difference": "0",
        "ledger": dict.fromkeys(("held", "not_held", "by_rates", "cost"), money["none"]),
    }  # fmt: skip
    return {"view": "invoice", **days, "reason": "", "totals": [total]}


def _amounts(before: str, after: str) -> dict[str, str]:
    return {"before": before, "after": after, "change": str(int(after) - int(before))}


def _period(month: int, closed_until: datetime) -> dict[str, datetime]:
    ends = datetime(2026, month + 1, 1, tzinfo=UTC)
    return {"window_start": datetime(2026, month, 1, tzinfo=UTC), "window_end": ends, "closed_until": closed_until}
