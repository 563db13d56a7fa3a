"""Tenants as a person lists them: when each was last seen, what it used, what it cost, and what its key and user are called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from core.errors import BadInput
from core.money import ZERO
from core.unit_cost import CostBasis
from core.windows import Window, floor_time
from models.identity_repo import TENANT_COLUMNS, list_aliases, tenants_seen
from models.ledger_repo import ledger_rows

DAY = timedelta(days=1)
RECENT = timedelta(days=2)
NO_COST = "no quarter hour with its work is closed and priced"


def tenant_rows(
    connection: Connection, by: Sequence[str], window: Window, basis: CostBasis, *, filters: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """One row a tenant that finished a request in the UTC days of ``window``: the keys of ``by``, ``name`` (of its key, else of
    its user, where a gateway gives one), ``requests``, ``last_seen``, ``costs`` {currency: amount} and ``cost_reason``.

    ``last_seen`` is exact to the hour within two days of the window's end, else to the day. Raises BadInput for an unknown key.
    """
    for key in by:
        if key not in TENANT_COLUMNS:
            raise BadInput("is not a part of a tenant", field="by", value=key, hint=f"use {', '.join(TENANT_COLUMNS)}")
    if not by:
        raise BadInput("names no key", field="by", hint=f"use {', '.join(TENANT_COLUMNS)}")
    days = whole_days(window)
    seen = tenants_seen(connection, by, days.start, days.end, days.end - RECENT, filters or {})
    costs = _costs(connection, by, days, basis, filters or {})
    names = _names(connection)
    return [_row(row, by, costs.get(tuple(row[key] for key in by), {}), names) for row in seen]


def whole_days(window: Window) -> Window:
    """The UTC days the window touches."""
    return Window(floor_time(window.start, DAY), floor_time(window.end - timedelta(microseconds=1), DAY) + DAY)


def _row(
    row: Mapping[str, Any], by: Sequence[str], costs: Mapping[str, Decimal], names: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    name = names.get(("key", row.get("key_id", "")), "") or names.get(("user", row.get("user", "")), "")
    last: datetime = row["last_seen"].astimezone(UTC)
    reason = "" if costs else NO_COST
    return {
        **{key: row[key] for key in by}, "name": name, "requests": row["requests"], "last_seen": last, "costs": dict(costs),
        "cost_reason": reason,
    }  # fmt: skip


def _costs(
    connection: Connection, by: Sequence[str], window: Window, basis: CostBasis, filters: Mapping[str, str]
) -> dict[tuple[str, ...], dict[str, Decimal]]:
    column = "allocated" if basis == "allocation" else "cost"
    found: dict[tuple[str, ...], dict[str, Decimal]] = defaultdict(dict)
    for row in ledger_rows(connection, (*by, "kind"), window, filters=filters):
        if row["kind"] in ("served", "wasted"):
            costs = found[tuple(row[key] for key in by)]
            costs[row["currency"]] = costs.get(row["currency"], ZERO) + row[column]
    return found


def _names(connection: Connection) -> dict[tuple[str, str], str]:
    return {(s.alias.kind, s.alias.external_id): s.alias.alias for s in list_aliases(connection)}
