"""The state of the data in a window: every kind of fault with its count, place, money and remedy, and the standing checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from core.quality import ABOUT, Capacity, about, money_at_risk, money_of
from core.windows import Window
from models.quality_kinds import Found, read_kinds
from models.standing_repo import list_checks, newest_check

PLACES = 5
"""Of the places with most of a kind so many are named."""


def data_quality(connection: Connection, window: Window, now: datetime) -> dict[str, Any]:
    """``kinds`` (dearest first): {kind, title, count, counts, first, last, places, money, money_is, what_to_do}; ``money`` per
    currency: {currency, total, by_kind, counted_twice} with total = Σ by kind - counted_twice; ``standing``: see ``standing``.

    ``money`` of a kind is [{currency, amount}], empty where ``money_is`` says why there is none. Closed quarter hours only.
    """
    found, capacity = read_kinds(connection, window, now)
    rows = [_row(one, capacity, now) for one in found]
    rows.sort(key=_dearest)
    return {"kinds": rows, "money": _totals(found, rows, capacity), "standing": standing(connection, window)}


def standing(connection: Connection, window: Window) -> dict[str, Any]:
    """Newest comparisons of the window's UTC days with the raw archive: {checked_at, days, differences}."""
    last = (window.end - timedelta(microseconds=1)).date()
    checks = list_checks(connection, window.start.date(), last)
    differences = [
        {
            "day": check.day, "deployment": str(check.deployment), "differs_since": check.differs_since,
            "checked_at": check.checked_at, "measures": dict(check.detail),
        }
        for check in checks
        if check.status != "ok"
    ]  # fmt: skip
    return {"checked_at": newest_check(connection), "days": len({check.day for check in checks}), "differences": differences}


def _row(found: Found, capacity: Capacity, now: datetime) -> dict[str, Any]:
    what = about(found.kind)
    money = money_of(found.touched, capacity) if what.sort != "none" else {}
    unpriced = what.sort != "none" and not money
    return {
        "kind": found.kind,
        "title": what.title,
        "count": found.count,
        "counts": what.counts,
        "first": found.first,
        "last": None if found.last is None else min(found.last, now),
        "places": _places(found.where),
        "money": [{"currency": currency, "amount": amount} for currency, amount in sorted(money.items())],
        "money_is": "not known: no closed, priced quarter hour is touched" if unpriced else what.money,
        "what_to_do": what.what_to_do,
    }


def _places(where: Mapping[str, int]) -> list[dict[str, Any]]:
    most = sorted(where.items(), key=lambda item: (-item[1], item[0]))
    shown = [{"place": place, "count": count} for place, count in most[:PLACES]]
    rest = sum(count for _place, count in most[PLACES:])
    return [*shown, *([{"place": f"{len(most) - PLACES} more", "count": rest}] if rest else [])]


def _dearest(row: Mapping[str, Any]) -> tuple[Decimal, int, str]:
    known = list(ABOUT)
    rank = known.index(row["kind"]) if row["kind"] in known else len(known)
    return -sum((part["amount"] for part in row["money"]), Decimal(0)), rank, row["kind"]


def _totals(found: Sequence[Found], rows: Sequence[Mapping[str, Any]], capacity: Capacity) -> list[dict[str, Any]]:
    total = money_at_risk([one.touched for one in found if about(one.kind).sort != "none"], capacity)
    by_kind: dict[str, Decimal] = {}
    for row in rows:
        for part in row["money"]:
            by_kind[part["currency"]] = by_kind.get(part["currency"], Decimal(0)) + part["amount"]
    return [
        {"currency": currency, "total": amount, "by_kind": by_kind[currency], "counted_twice": by_kind[currency] - amount}
        for currency, amount in sorted(total.items())
    ]
