"""What bills, the join and the ledger say of one billing period or one month of use, summed each in its own table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, text

from core.bill_facts import Costs, View
from core.money import ZERO
from core.usage import Deployment
from core.windows import Window, month_on

DAY = timedelta(days=1)
WindowKey = tuple[Deployment, datetime]
"""A deployment's quarter hour."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One period of bills: a billing period (``invoice``), or a month of use in UTC (``usage``), by its first day."""

    view: View
    first: date

    @property
    def after(self) -> date:
        return month_on(self.first, 1)

    @property
    def label(self) -> str:
        return f"{self.first:%Y-%m}"

    @property
    def runs_into(self) -> str:
        """The month that a billing period which does not begin on the 1st ends in, else ''."""
        return f"{self.after:%Y-%m}" if self.view == "invoice" and self.first.day > 1 else ""

    @property
    def window(self) -> Window:
        return Window(*(datetime.combine(day, time(0), tzinfo=UTC) for day in (self.first, self.after)))


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """Newest version of a quarter hour. ``charged``: the part bills pay, None without one. ``is_dirty``: to be closed again."""

    currency: str
    capacity: Decimal | None
    charged: Decimal | None
    state: str
    is_dirty: bool


@dataclass(frozen=True, slots=True)
class LineSum:
    """Ledger lines of some quarter hours by currency, kind and whose they are."""

    currency: str
    kind: str
    org: str
    team: str
    cost: Decimal
    allocated: Decimal


_CHARGES = "charge_day c JOIN bill_delivery d ON d.id = c.delivery AND d.status = 'current'"
_USED = "date_trunc('month', coalesce(c.day, d.billing_period))::date"
_IN_SCOPE: Mapping[View, str] = {"invoice": "d.billing_period = :first", "usage": f"{_USED} = :first"}
_OTHER_TIME: Mapping[View, str] = {"invoice": "c.day", "usage": "CASE WHEN c.day IS NOT NULL THEN d.billing_period END"}
_NODE = "node_charge n JOIN bill_delivery d ON d.id = n.delivery AND d.status = 'current'"
_DELIVERY_IN_SCOPE: Mapping[View, str] = {
    "invoice": _IN_SCOPE["invoice"],
    "usage": f"d.id IN (SELECT c.delivery FROM {_CHARGES} WHERE {_IN_SCOPE['usage']})",
}
_NODE_IN_SCOPE: Mapping[View, str] = {"invoice": "d.billing_period = :first", "usage": "n.hour >= :start AND n.hour < :end"}


_CHARGED_DAYS = """
    SELECT date_trunc('day', w.window_start, 'UTC') FROM ledger_window w
    JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    WHERE w.window_start >= :start AND w.window_start < :end AND h.window_start >= :start AND h.window_start < :end
      AND w.charged_cost IS NOT NULL"""


def billed_periods(connection: Connection, view: View) -> list[Scope]:
    """Billing periods that have a current delivery, or months of use that one charges; oldest first."""
    query = {
        "invoice": "SELECT DISTINCT billing_period FROM bill_delivery WHERE status = 'current' ORDER BY 1",
        "usage": f"SELECT DISTINCT {_USED} FROM {_CHARGES} ORDER BY 1",
    }[view]
    return [Scope(view, first) for first in connection.execute(text(query)).scalars()]


def _values(scope: Scope) -> dict[str, Any]:
    return {"first": scope.first, "start": scope.window.start, "end": scope.window.end}


def bucket_costs(connection: Connection, scope: Scope) -> dict[str, dict[str, Costs]]:
    """Charges by currency and bucket."""
    return _charge_costs(connection, scope, "c.bucket")


def month_costs(connection: Connection, scope: Scope) -> dict[str, dict[str, Costs]]:
    """Charges by currency and month of use ("2026-07"), in the usage view by billing period; '' of those that
    tell no day of use."""
    return _charge_costs(connection, scope, f"coalesce(to_char({_OTHER_TIME[scope.view]}, 'YYYY-MM'), '')")


def _charge_costs(connection: Connection, scope: Scope, key: str) -> dict[str, dict[str, Costs]]:
    where = _IN_SCOPE[scope.view]
    query = f"SELECT c.currency, {key}, sum(c.billed), sum(c.effective) FROM {_CHARGES} WHERE {where} GROUP BY 1, 2"
    return _nested(connection.execute(text(query), _values(scope)))


def joined_costs(connection: Connection, scope: Scope) -> dict[str, dict[str, Costs]]:
    """What the join gave to machines, by currency and bucket."""
    where = _NODE_IN_SCOPE[scope.view]
    query = f"SELECT n.currency, n.bucket, sum(n.billed), sum(n.effective) FROM {_NODE} WHERE {where} GROUP BY 1, 2"
    return _nested(connection.execute(text(query), _values(scope)))


def unmatched_costs(connection: Connection, scope: Scope) -> dict[str, dict[tuple[str, str], Costs]]:
    """What the join of a billing period's deliveries left over, by currency, bucket and reason."""
    query = """
    SELECT u.currency, u.bucket, u.reason, sum(u.billed), sum(u.effective)
    FROM charge_unmatched u JOIN bill_delivery d ON d.id = u.delivery AND d.status = 'current'
    WHERE d.billing_period = :first GROUP BY 1, 2, 3"""
    found: dict[str, dict[tuple[str, str], Costs]] = {}
    for currency, bucket, reason, billed, effective in connection.execute(text(query), _values(scope)):
        found.setdefault(currency, {})[bucket, reason] = Costs(billed, effective)
    return found


def unjoined_deliveries(connection: Connection, scope: Scope) -> int:
    """How many deliveries of the scope never went through the join."""
    query = f"""
    SELECT count(*) FROM bill_delivery d WHERE d.status = 'current' AND {_DELIVERY_IN_SCOPE[scope.view]}
    AND NOT EXISTS (SELECT 1 FROM charge_join j WHERE j.delivery = d.id)"""
    return int(connection.execute(text(query), _values(scope)).scalar_one())


def deliveries_of(connection: Connection, scope: Scope) -> list[dict[str, Any]]:
    """The current deliveries that charge in the scope: id, source, export, billing_period, version, is_final, invoice_ids,
    received_at, totals."""
    query = f"""
    SELECT d.id, d.source, d.export, d.billing_period, d.version, d.is_final, d.invoice_ids, d.received_at, d.totals
    FROM bill_delivery d WHERE d.status = 'current' AND {_DELIVERY_IN_SCOPE[scope.view]}
    ORDER BY d.billing_period, d.source, d.export"""
    return [dict(row) for row in connection.execute(text(query), _values(scope)).mappings()]


def machine_days(connection: Connection, scope: Scope) -> list[Window]:
    """UTC days on which the scope charges a machine, in the usage view also those on which the ledger says that a bill does."""
    query = f"SELECT date_trunc('day', n.hour, 'UTC') FROM {_NODE} WHERE {_NODE_IN_SCOPE[scope.view]}"
    if scope.view == "usage":
        query += f" UNION {_CHARGED_DAYS}"
    query = f"SELECT DISTINCT day FROM ({query}) AS found (day) ORDER BY 1"
    days = connection.execute(text(query), _values(scope)).scalars()
    return [Window(day, day + DAY) for day in days]


def closed_windows(connection: Connection, window: Window) -> dict[WindowKey, ClosedWindow]:
    """Newest versions of the quarter hours that start in ``window``."""
    query = """
    SELECT w.cluster, w.namespace, w.model_id, w.window_start, w.currency, w.capacity_cost, w.charged_cost, w.state,
      x.window_start IS NOT NULL AS is_dirty
    FROM ledger_window w JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    LEFT JOIN dirty_window x USING (cluster, namespace, model_id, window_start)
    WHERE w.window_start >= :start AND w.window_start < :end AND h.window_start >= :start AND h.window_start < :end"""
    found = connection.execute(text(query), {"start": window.start, "end": window.end})
    return {
        (Deployment(r.cluster, r.namespace, r.model_id), r.window_start): ClosedWindow(
            r.currency, r.capacity_cost, r.charged_cost, r.state, r.is_dirty
        )
        for r in found
    }


def line_sums(connection: Connection, window: Window, keys: Iterable[WindowKey]) -> list[LineSum]:
    """Newest lines of these quarter hours, which all start in ``window``."""
    asked = sorted(keys, key=lambda key: (key[1], key[0]))
    if not asked:
        return []
    query = """
    SELECT w.currency, l.kind, l.org, l.team, sum(l.cost) AS cost, sum(l.allocated) AS allocated
    FROM ledger_line l JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
    JOIN unnest(CAST(:clusters AS varchar[]), CAST(:namespaces AS varchar[]), CAST(:models AS varchar[]),
      CAST(:starts AS timestamptz[])) AS k (cluster, namespace, model_id, window_start)
      USING (cluster, namespace, model_id, window_start)
    WHERE l.window_start >= :start AND l.window_start < :end AND h.window_start >= :start AND h.window_start < :end
    GROUP BY 1, 2, 3, 4"""
    values = {
        "start": window.start,
        "end": window.end,
        "clusters": [deployment.cluster for deployment, _ in asked],
        "namespaces": [deployment.namespace for deployment, _ in asked],
        "models": [deployment.model_id for deployment, _ in asked],
        "starts": [start for _, start in asked],
    }
    return [LineSum(**row._mapping) for row in connection.execute(text(query), values)]


def _nested(rows: Iterable[Sequence[Any]]) -> dict[str, dict[str, Costs]]:
    found: dict[str, dict[str, Costs]] = {}
    for currency, name, billed, effective in rows:
        found.setdefault(currency, {})[name] = Costs(billed or ZERO, effective or ZERO)
    return found
