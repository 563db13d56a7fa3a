"""The reconciliation of bills with the ledger: facts from the tables, day by day, and the waterfall of each period."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import Connection

from core.bill_facts import BillFacts, Costs, LedgerMoney, MachineMoney, View
from core.bill_reconcile import rows, unnamed, waterfall
from core.billing import month_of
from core.capacity_charges import HourShare
from core.money import CONTEXT, ZERO, total
from core.shared_cost import taken_by
from core.windows import QUARTER_HOUR, Window
from models.bill_reconcile_repo import (
    ClosedWindow,
    LineSum,
    Scope,
    WindowKey,
    billed_periods,
    bucket_costs,
    closed_windows,
    deliveries_of,
    joined_costs,
    line_sums,
    machine_days,
    month_costs,
    unjoined_deliveries,
    unmatched_costs,
)
from models.shared_repo import read_rules, shared_charges
from models.trueup_repo import hour_shares

NO_TENANT = "(no tenant)"


def reconcile(
    connection: Connection, *, view: View = "invoice", period: date | None = None, currency: str | None = None
) -> list[dict[str, Any]]:
    """One waterfall per period and currency, oldest first: {billing_period, currency, view, state, deliveries, ledger_states,
    received_at, rows, difference, open}.

    ``rows``: {step, bucket, parent, billed_cost, effective_cost, hint, is_open, is_difference}; ``difference`` is what no row
    names, in sum over steps without sign: 0, or something is wrong. ``period`` is a month: of the billing periods that begin in
    it (``core.billing.month_of``), each has a waterfall of its own; in the usage view of what was used in it.
    """
    scopes = billed_periods(connection, view)
    if period is not None:
        scopes = [scope for scope in scopes if month_of(scope.first) == month_of(period)]
    return [found for scope in scopes for found in _of_scope(connection, scope) if currency in (None, found["currency"])]


def _of_scope(connection: Connection, scope: Scope) -> list[dict[str, Any]]:
    buckets, deliveries = bucket_costs(connection, scope), deliveries_of(connection, scope)
    months, joined = month_costs(connection, scope), joined_costs(connection, scope)
    unmatched = unmatched_costs(connection, scope) if scope.view == "invoice" else None
    is_joined = unjoined_deliveries(connection, scope) == 0
    hours = _MachineHours(scope, frozenset(d["id"] for d in deliveries))
    for day in machine_days(connection, scope):
        hours.read(connection, day)
    taken = _taken(connection, scope, hours.deliveries)
    found: list[dict[str, Any]] = []
    for currency in sorted(buckets):
        facts = BillFacts(
            scope.view,
            scope.label,
            buckets[currency],
            months.get(currency, {}),
            stated=_stated(deliveries, currency) if scope.view == "invoice" else None,
            joined=joined.get(currency, {}),
            unmatched=None if unmatched is None else unmatched.get(currency, {}),
            is_joined=is_joined,
            machines=hours.machines(currency),
            ledger=hours.ledger(currency),
            runs_into=scope.runs_into,
            shared={(rule, bucket): amount for (rule, bucket, unit), amount in taken.items() if unit == currency},
        )
        found.append(_answer(scope, currency, facts, deliveries, hours.states[currency]))
    return found


def _taken(connection: Connection, scope: Scope, deliveries: frozenset[int]) -> dict[tuple[str, str, str], Decimal]:
    """What shared cost rules take of the scope, by (rule, bucket, currency)."""
    rules = read_rules(connection)
    if not rules:
        return {}
    days = (scope.first, scope.after) if scope.view == "usage" else (date.min, date.max)
    return taken_by(shared_charges(connection, *days, rules, deliveries), rules, scope.first)


def _stated(deliveries: Sequence[Mapping[str, Any]], currency: str) -> Costs:
    """What the deliveries say of themselves, summed when they were read."""
    own = [t for d in deliveries for t in d["totals"] if t["currency"] == currency]
    return sum((Costs(Decimal(t["billed"] or 0), Decimal(t["effective"] or 0)) for t in own), Costs())


def _answer(
    scope: Scope, currency: str, facts: BillFacts, deliveries: Sequence[Mapping[str, Any]], states: Counter[str]
) -> dict[str, Any]:
    steps = waterfall(facts)
    gaps = [step.difference for step in unnamed(steps)]
    return {
        "billing_period": scope.first,
        "currency": currency,
        "view": scope.view,
        "state": "final" if deliveries and all(d["is_final"] for d in deliveries) else "provisional",
        "ledger_states": dict(sorted(states.items())),
        "deliveries": [{name: value for name, value in d.items() if name not in ("id", "totals")} for d in deliveries],
        "received_at": max(d["received_at"] for d in deliveries) if deliveries else None,
        "rows": [
            {
                "step": row.step, "bucket": row.bucket, "parent": row.parent, "billed_cost": row.billed,
                "effective_cost": row.effective, "hint": row.hint, "is_open": row.is_open, "is_difference": row.is_difference,
            }
            for row in rows(steps)
        ],
        "difference": total(max(abs(gap.billed), abs(gap.effective)) for gap in gaps),
    }  # fmt: skip


@dataclass(slots=True)
class _Money:
    """One currency's sums over the machine hours of a scope."""

    held: Decimal = ZERO
    unassigned: Decimal = ZERO
    not_running: Decimal = ZERO
    rounding: Decimal = ZERO
    capacity: Decimal = ZERO
    other_bills: Decimal = ZERO
    by_rates: Decimal = ZERO
    open: dict[str, Decimal] = field(default_factory=lambda: defaultdict(lambda: ZERO))
    lines: dict[str, Decimal] = field(default_factory=lambda: defaultdict(lambda: ZERO))
    tenants: dict[str, Decimal] = field(default_factory=lambda: defaultdict(lambda: ZERO))


@dataclass(slots=True)
class _Held:
    """Money of one quarter hour of a deployment in one currency: of the scope's bills, and of other bills."""

    own: Decimal = ZERO
    others: Decimal = ZERO


class _MachineHours:
    """Shares every hour of the scope's machines as the ledger's close does, and compares with what is closed."""

    def __init__(self, scope: Scope, deliveries: frozenset[int]) -> None:
        self._scope, self.deliveries = scope, deliveries
        self._by_currency: dict[str, _Money] = defaultdict(_Money)
        self.states: dict[str, Counter[str]] = defaultdict(Counter)

    def machines(self, currency: str) -> MachineMoney:
        money = self._by_currency[currency]
        return MachineMoney(money.held, money.unassigned, money.not_running, money.rounding)

    def ledger(self, currency: str) -> LedgerMoney:
        m = self._by_currency[currency]
        largest = dict(sorted(m.tenants.items(), key=lambda item: (-item[1], item[0])))
        return LedgerMoney(m.capacity, m.other_bills, m.by_rates, dict(m.open), dict(m.lines), largest)

    def read(self, connection: Connection, day: Window) -> None:
        """One UTC day: bounded memory, however long the period is."""
        held: dict[tuple[WindowKey, str], _Held] = defaultdict(_Held)
        closed = closed_windows(connection, day)
        with localcontext(CONTEXT):
            for hour in hour_shares(connection, day):
                self._share(hour, held)
            if self._scope.view == "usage":  # also what was closed by a bill that is no longer in force
                for key, window in closed.items():
                    if window.charged is not None:
                        held[key, window.currency].own += ZERO
            touched = {key: money for key, money in held.items() if money.own or self._scope.view == "usage"}
            counted = self._compare(touched, closed)
            for line in line_sums(connection, day, counted):
                self._line(line)

    def _share(self, hour: HourShare, held: dict[tuple[WindowKey, str], _Held]) -> None:
        for share in hour.shares:
            is_own = share.delivery in self.deliveries
            for (service, quarter), amount in share.held.items():
                found = held[(service.deployment, hour.hour + quarter * QUARTER_HOUR), share.currency]
                if is_own:
                    found.own += amount
                else:
                    found.others += amount
            if is_own:
                money = self._by_currency[share.currency]
                money.rounding += share.rounding
                money.held += sum(share.held.values())
                if hour.is_billed:
                    money.unassigned += share.unassigned
                else:
                    money.not_running += share.unassigned

    def _compare(
        self, touched: Mapping[tuple[WindowKey, str], _Held], closed: Mapping[WindowKey, ClosedWindow]
    ) -> set[WindowKey]:
        """Held money against the closed quarter hours; returns those that count."""
        counted: set[WindowKey] = set()
        for (key, currency), held in touched.items():
            money, window = self._by_currency[currency], closed.get(key)
            why = _not_counted(window, currency)
            if why or window is None or window.capacity is None or window.charged is None:
                money.open[why] += held.own
                continue
            counted.add(key)
            self.states[currency][window.state] += 1
            money.capacity += window.capacity
            money.by_rates += window.capacity - window.charged
            money.other_bills += held.others
            if window.is_dirty:
                money.open["to be closed again"] += held.own + held.others - window.charged
        return counted

    def _line(self, line: LineSum) -> None:
        money = self._by_currency[line.currency]
        tenant = "/".join(part for part in (line.org, line.team) if part) or NO_TENANT
        money.lines[line.kind] += line.cost
        money.tenants[tenant] += line.allocated


def _not_counted(window: ClosedWindow | None, currency: str) -> str:
    """Why held money is in no closed quarter hour; '' when it is."""
    if window is None:
        return "not closed yet"
    if window.capacity is None:
        return "closed without a price"
    if window.charged is None:
        return "closed before this bill"
    return "" if window.currency == currency else "closed in another currency"
