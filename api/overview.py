"""The figures of the Overview page: one period against the one before, and a series for the chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, Literal

from sqlalchemy import Connection

from control.running_cost import SpendAsk, spend_many
from core.money import CONTEXT
from core.scopes import Scope
from core.spend import Spend
from core.unit_cost import CostBasis
from core.windows import Window, floor_time, period_window
from models.ledger_repo import ledger_rows, unit_cost_rows

HOUR = timedelta(hours=1)
LATELY = timedelta(hours=6)
"""Steps that reach into this time may hold quarter hours not yet closed: their spend is asked for with its estimate."""
HOURLY_UP_TO = timedelta(days=3)
CURRENCIES = "costs are in several currencies"


@dataclass(frozen=True, slots=True)
class View:
    """Whose figures, of when, on which basis. ``filters`` narrow ledger lines to the scope."""

    scope: Scope
    filters: Mapping[str, str]
    window: Window
    basis: CostBasis
    now: datetime
    zone: str
    currency: str

    @property
    def elapsed(self) -> Window:
        """The part of the window that has passed."""
        end = min(self.window.end, max(self.now, self.window.start + timedelta(seconds=1)))
        return Window(self.window.start, end)

    @property
    def before(self) -> Window:
        """As much time of the period before: of the month before for a whole month, else of the same span before."""
        month = period_window("month", self.window.start, self.zone)
        if self.window == month:
            last = period_window("month", month.start - HOUR, self.zone)
            return Window(last.start, min(last.start + self.elapsed.duration, last.end))
        return Window(self.window.start - self.window.duration, self.elapsed.end - self.window.duration)

    def spends(self, connection: Connection, windows: Sequence[Window]) -> list[Spend]:
        """The scope's spend in each window, in their order."""
        asks = [SpendAsk(self.scope, window, self.basis, self.currency) for window in windows]
        return spend_many(connection, asks, self.now)


@dataclass(frozen=True, slots=True)
class Figure:
    value: Decimal | None
    reason: str


@dataclass(frozen=True, slots=True)
class UnitFigures:
    """Blended cost of a million tokens of the closed quarter hours, and how it came about."""

    blended: Figure
    meta: Mapping[str, Any]


def unit_figures(connection: Connection, view: View, window: Window) -> UnitFigures:
    """From the closed ledger alone."""
    rows = unit_cost_rows(connection, (), window, view.basis, filters=view.filters, zone_name=view.zone)
    if len(rows) != 1:
        reason = CURRENCIES if rows else "no quarter hour is closed"
        return UnitFigures(Figure(None, reason), {})
    row = rows[0]
    return UnitFigures(Figure(row["blended_per_mtok"], row["reasons"].get("blended_per_mtok", "")), row["meta"])


def closed_steps(connection: Connection, view: View) -> list[dict[str, Any]]:
    """Closed cost of the elapsed time by step of the series, kind of line and currency."""
    return ledger_rows(
        connection, (step_of(view.elapsed), "kind"), view.elapsed, filters=view.filters, zone_name=view.zone
    )  # fmt: skip


def idle_share(view: View, closed: Sequence[Mapping[str, Any]]) -> Figure:
    """Idle / capacity of the steps."""
    if len({row["currency"] for row in closed}) > 1:
        return Figure(None, CURRENCIES)
    if not closed:
        return Figure(None, "no quarter hour is closed")
    if view.filters:
        return Figure(None, "idle time is the deployment's; it cannot be cut by tenant")
    capacity = sum((row["cost"] for row in closed), Decimal(0))
    if capacity <= 0:
        return Figure(None, "no priced quarter hour is closed")
    with localcontext(CONTEXT):
        return Figure(sum((row["cost"] for row in closed if row["kind"] == "idle"), Decimal(0)) / capacity, "")


def step_of(window: Window) -> Literal["hour", "day"]:
    return "hour" if window.duration <= HOURLY_UP_TO else "day"


def steps(window: Window, zone_name: str) -> Iterator[Window]:
    """The hours, or the reporting zone's days, that the window touches; cut at its ends."""
    at = window.start
    while at < window.end:
        whole = Window(floor_time(at, HOUR), floor_time(at, HOUR) + HOUR)
        if step_of(window) == "day":
            whole = period_window("day", at, zone_name)
        yield Window(at, min(whole.end, window.end))
        at = whole.end


def late_steps(view: View) -> list[Window]:
    """The steps whose spend is asked for with its estimate."""
    return [window for window in steps(view.elapsed, view.zone) if window.end > view.now - LATELY]


def series(view: View, closed: Sequence[Mapping[str, Any]], late: Mapping[Window, Spend]) -> list[dict[str, Any]]:
    """One point a step: the cost of ``closed_steps``, or the spend given for ``late_steps``; unknown stays unknown."""
    elapsed = view.elapsed
    column = "allocated" if view.basis == "allocation" else "cost"
    sums: dict[datetime, dict[str, Decimal]] = {}
    for row in closed:
        of_step = sums.setdefault(row[step_of(elapsed)], {})
        of_step[row["currency"]] = of_step.get(row["currency"], Decimal(0)) + row[column]
    return [_late(w, late[w]) if w in late else _closed(view, w, sums) for w in steps(elapsed, view.zone)]


def _late(window: Window, found: Spend) -> dict[str, Any]:
    ends = {"start": window.start, "end": window.end}
    if found.amount is None:
        return {**ends, "cost": None, "currency": None, "state": "unknown", "reason": found.reason}
    state = "estimate" if found.state == "estimate" else "closed"
    return {**ends, "cost": found.amount.amount, "currency": found.amount.currency, "state": state, "reason": found.reason}


def _closed(view: View, window: Window, closed: Mapping[datetime, Mapping[str, Decimal]]) -> dict[str, Any]:
    ends = {"start": window.start, "end": window.end}
    begins = floor_time(window.start, HOUR)
    if step_of(view.elapsed) == "day":
        begins = period_window("day", window.start, view.zone).start
    sums = closed.get(begins, {})
    if len(sums) != 1:
        reason = CURRENCIES if sums else "no quarter hour of it is closed and priced"
        return {**ends, "cost": None, "currency": None, "state": "unknown", "reason": reason}
    ((currency, cost),) = sums.items()
    return {**ends, "cost": cost, "currency": currency, "state": "closed", "reason": ""}
