"""A statement and closed months as plain rows, for the command line and the API alike."""

from __future__ import annotations

from typing import Any

from control.statement import PeriodCheck, Statement
from core.statement import StatementRow, totals
from models.period_repo import ClosedPeriod


def statement_view(found: Statement) -> dict[str, Any]:
    """``rows`` {section, month, kind, bearer, the keys, currency, amount, why}, ``totals`` {section, currency, amount},
    ``not_shared`` {what, currency, amount}, and what the numbers are; amounts are Decimals."""
    rows = [_row(row) for row in found.rows]
    return {
        "month": f"{found.month:%Y-%m}", "window_start": found.window.start, "window_end": found.window.end,
        "closed_at": found.closed_at, "as_of": found.as_of, "basis": found.basis, "idle": found.idle,
        "idle_words": found.idle_words, "rows": rows, "totals": _totals(found),
        "not_shared": [{"what": n.name, "currency": n.currency, "amount": n.amount} for n in found.not_shared],
        "states": dict(found.states), "unpriced": found.unpriced, "waiting": found.waiting, "kept_at": found.kept_at,
    }  # fmt: skip


def period_row(period: ClosedPeriod) -> dict[str, Any]:
    """A closed month, with what stood on its statement."""
    t = period.totals
    return {
        "month": f"{period.period:%Y-%m}", "closed_at": period.closed_at, "closed_by": period.closed_by, "reason": period.reason,
        "money": t["money"], "states": t["states"], "unpriced": t["unpriced"], "waiting": t["waiting"],
        "accepted": list(t["accepted"]), "window_start": period.window.start, "window_end": period.window.end,
    }  # fmt: skip


def check_row(check: PeriodCheck) -> dict[str, Any]:
    """What stands of a month that is to be closed, or was just now."""
    stands = check.standing
    return {
        "month": f"{check.month:%Y-%m}", "window_start": check.window.start, "window_end": check.window.end,
        "closed_at": check.closed_at, "money": dict(check.totals), "states": dict(stands.states), "unpriced": stands.unpriced,
        "unpriced_reason": stands.reason, "waiting": check.waiting, "refusal": check.refusal, "accept": list(check.accept),
    }  # fmt: skip


def _row(row: StatementRow) -> dict[str, Any]:
    head = {"section": row.section, "month": f"{row.month:%Y-%m}", "kind": row.kind, "bearer": row.bearer}
    return {**head, **row.keys, "currency": row.currency, "amount": row.amount, "why": row.why}


def _totals(found: Statement) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for section, title in (("own", "own"), ("correction", "corrections")):
        parts = totals(row for row in found.rows if row.section == section)
        rows += [{"section": title, "currency": currency, "amount": amount} for currency, amount in parts.items()]
    return [*rows, *({"section": "all", "currency": c, "amount": amount} for c, amount in found.totals.items())]
