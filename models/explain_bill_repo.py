"""What the bills in force charge in two periods that are compared: by bucket, what was matched to machines, and machine time."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import Any

from sqlalchemy import Connection, text

from core.bill_facts import Costs, View
from core.explain_bill import MACHINE_BUCKETS, BillPeriod, MachineTime
from core.money import ZERO, total
from core.windows import Window

_CURRENT = "JOIN bill_delivery d ON d.id = {x}.delivery AND d.status = 'current'"
_CHARGES = {
    "invoice": "d.billing_period >= :first AND d.billing_period < :after",
    "usage": "coalesce(c.day, d.billing_period) >= :first AND coalesce(c.day, d.billing_period) < :after",
}
_NODES = {
    "invoice": "d.billing_period >= :first AND d.billing_period < :after",
    "usage": "n.hour >= CAST(:first AS timestamp) AT TIME ZONE 'UTC' AND n.hour < CAST(:after AS timestamp) AT TIME ZONE 'UTC'",
}
_HELD = text("""
    SELECT w.currency, sum(w.charged_cost) AS held
    FROM ledger_window w JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    WHERE w.window_start >= :start AND w.window_start < :end AND h.window_start >= :start AND h.window_start < :end
        AND w.capacity_cost IS NOT NULL
    GROUP BY 1
""")


def bill_periods(connection: Connection, view: View, first: date, after: date, ledger: Window) -> dict[str, BillPeriod]:
    """Currency -> the period's charges: of billing periods that begin in [first, after), or of UTC days of use in it.

    ``ledger``: the closed quarter hours that hold machines' money of the period.
    """
    bound = {"first": first, "after": after}
    buckets, joined = _buckets(connection, view, bound), _joined(connection, view, bound)
    machines = _machines(connection, view, bound)
    held = {r.currency: r.held or ZERO for r in connection.execute(_HELD, {"start": ledger.start, "end": ledger.end})}
    days = (after - first).days
    return {
        currency: BillPeriod(days, own, joined.get(currency, {}), tuple(machines.get(currency, ())), held.get(currency, ZERO))
        for currency, own in sorted(buckets.items())
    }


def _buckets(connection: Connection, view: View, bound: dict[str, Any]) -> dict[str, dict[str, Costs]]:
    query = f"""
    SELECT c.currency, c.bucket, sum(c.billed) AS billed, sum(c.effective) AS effective
    FROM charge_day c {_CURRENT.format(x="c")} WHERE {_CHARGES[view]} AND c.bucket <> 'split_memo' GROUP BY 1, 2"""
    return _nested(connection, query, bound)


def _joined(connection: Connection, view: View, bound: dict[str, Any]) -> dict[str, dict[str, Costs]]:
    query = f"""
    SELECT n.currency, n.bucket, sum(n.billed) AS billed, sum(n.effective) AS effective
    FROM node_charge n {_CURRENT.format(x="n")} WHERE {_NODES[view]} GROUP BY 1, 2"""
    return _nested(connection, query, bound)


def _nested(connection: Connection, query: str, bound: dict[str, Any]) -> dict[str, dict[str, Costs]]:
    found: dict[str, dict[str, Costs]] = defaultdict(dict)
    for row in connection.execute(text(query), bound):
        found[row.currency][row.bucket] = Costs(total([row.billed or ZERO]), total([row.effective or ZERO]))
    return found


def _machines(connection: Connection, view: View, bound: dict[str, Any]) -> dict[str, list[MachineTime]]:
    query = f"""
    SELECT c.currency, c.instance_type, c.resource_id, c.commitment_id, sum(c.hours) AS hours, sum(c.effective) AS effective
    FROM charge_day c {_CURRENT.format(x="c")} WHERE {_CHARGES[view]} AND c.bucket = ANY(:machine)
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"""
    found: dict[str, list[MachineTime]] = defaultdict(list)
    for row in connection.execute(text(query), {**bound, "machine": list(MACHINE_BUCKETS)}):
        line = MachineTime(row.instance_type, row.resource_id, row.commitment_id, row.hours, total([row.effective or ZERO]))
        found[row.currency].append(line)
    return found
