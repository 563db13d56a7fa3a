"""Charges and ledger lines in one currency: each day's money at the rate of that day, the original beside it.

What has no rate stays in its own currency, in rows of its own with the reason; currencies are never added without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from sqlalchemy import Connection

from core.errors import BadInput
from core.fx import DatedRow, SumsIn, sums_in
from core.windows import Window, zone
from models.billing_repo import charges_by
from models.fx_repo import fx_book
from models.ledger_repo import ledger_rows

CHARGE_MONEY = ("billed_cost", "effective_cost", "list_cost", "contracted_cost", "effective_without_list", "memo_cost")
CHARGE_COUNTS = ("rows", "hours")
LEDGER_MONEY = ("cost", "allocated")
LEDGER_COUNTS = ("tokens", "requests")
REPORTING = "reporting"
"""Names the organisation's own currency where one is asked for."""


def asked_currency(text: str, reporting: str, name: str) -> str:
    """A currency as a person or program names it. Raises BadInput naming the option ``name``."""
    code = reporting if text == REPORTING else text.upper()
    if len(code) != 3 or not code.isascii() or not code.isalpha():
        raise BadInput("is no currency", field=name, value=text, hint=f"write EUR, or {REPORTING} for the organisation's own")
    return code


def charges_in(connection: Connection, keys: Sequence[str], to: str, *, via: str = "", **asked: Any) -> dict[str, Any]:
    """``charges_by`` (``asked``: its options) in ``to``, by UTC day of use; charges without one by their billing period.

    ``rows``: as there, with ``original`` [{currency, …}] and ``reason``; ``missing`` [{base, quote, day}]; ``rates`` used.
    """
    finer = [*keys, *(key for key in ("day", "billing_period") if key not in keys)]
    found = charges_by(connection, finer, **asked)
    rows = [_dated(row, keys, row["day"] or row["billing_period"], CHARGE_MONEY, CHARGE_COUNTS) for row in found]
    return _answer(connection, rows, keys, to, via)


def ledger_in(
    connection: Connection, keys: Sequence[str], window: Window, to: str, *, via: str = "", zone_name: str = "UTC", **asked: Any
) -> dict[str, Any]:
    """``ledger_rows`` in ``to``, by day of the reporting zone; the same shape as ``charges_in``."""
    found = ledger_rows(connection, [*keys, *(["day"] if "day" not in keys else [])], window, zone_name=zone_name, **asked)
    tz = zone(zone_name)
    rows = [_dated(row, keys, row["day"].astimezone(tz).date(), LEDGER_MONEY, LEDGER_COUNTS) for row in found]
    return _answer(connection, rows, keys, to, via)


def _dated(row: Mapping[str, Any], keys: Sequence[str], day: date, money: Sequence[str], counts: Sequence[str]) -> DatedRow:
    amounts = {name: row[name] for name in money}
    return DatedRow(tuple(row[key] for key in keys), row["currency"], day, amounts, {name: row[name] for name in counts})


def _answer(connection: Connection, rows: Sequence[DatedRow], keys: Sequence[str], to: str, via: str) -> dict[str, Any]:
    book = fx_book(connection, {row.day for row in rows}, {to, *(row.currency for row in rows)}, via=via)
    found = sums_in(rows, to, book)
    return {
        "currency": to,
        "rows": _rows(found, keys),
        "missing": [{"base": base, "quote": quote, "day": day} for base, quote, day in found.missing],
        "rates": list(found.paths),
    }


def _rows(found: SumsIn, keys: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            **dict(zip(keys, one.group, strict=True)),
            "currency": one.currency,
            **{name: None if value is None else _count(name, value) for name, value in one.counts.items()},
            **one.amounts,
            "original": [{"currency": currency, **amounts} for currency, amounts in one.original.items()],
            "reason": one.reason,
        }
        for one in found.rows
    ]


def _count(name: str, value: Any) -> Any:
    return value if name == "hours" else int(value)
