"""How sure closed windows are: by rates, by bills, by issued invoices; and what bills changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.money import ZERO


def by_state(windows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Priced windows by state and currency: how many, what they cost, how much of it bills say, and where bills are the price,
    what rates had said and the difference (``trueup``). ``windows``: rows of ``models.ledger_repo.ledger_windows``."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for w in windows:
        if w["capacity_cost"] is None:
            continue
        empty = {"windows": 0, "capacity_cost": ZERO, "charged_cost": ZERO, "estimate_cost": ZERO, "trueup": ZERO}
        held = sums.setdefault((w["state"], w["currency"]), empty)
        held["windows"] += 1
        held["capacity_cost"] += w["capacity_cost"]
        held["charged_cost"] += w["charged_cost"] or ZERO
        if w["estimate_cost"] is not None:
            held["estimate_cost"] += w["estimate_cost"]
            held["trueup"] += w["capacity_cost"] - w["estimate_cost"]
    return [{"state": state, "currency": currency, **held} for (state, currency), held in sorted(sums.items())]
