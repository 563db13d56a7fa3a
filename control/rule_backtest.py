"""What a rule would have done over history in the database: firings, false trips a week, and whom a breaker would have refused.

A firing is false where no labelled incident touches it: an alert a person acknowledged on the same scope, or a window the caller
names. Of a deployment's firing the tenants refused are its causes (``core.why``); of a tenant's it is the tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import Connection

from control.rule_watch import REFIT_AFTER
from control.rule_why import causes, own_work
from core.errors import BadInput
from core.rule_backtest import Firing, false_per_week, replay
from core.rules import Rule
from core.windows import Window, floor_time
from models.decision_price_repo import UnitPrice, decision_prices, hold_prices
from models.rule_repo import list_alerts
from models.rule_series import read_points

LONGEST = timedelta(days=92)
ENOUGH = timedelta(days=7)
MOST_FALSE = Decimal(1)
"""The design's bar for a rule to be offered for enforcement: false trips a week on any one scope."""


@dataclass(frozen=True, slots=True)
class TestedFiring:
    """``tenants`` would have been refused, with ``requests`` of theirs from the firing to the recovery."""

    scope: str
    started_at: datetime
    fired_at: datetime
    ended_at: datetime
    recovered: bool
    false: bool
    value: float | None
    threshold: float | None
    at_risk: Decimal | None
    currency: str
    tenants: tuple[str, ...]
    requests: int


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """``false_trips_per_week`` is that of the worst scope; ``offerable``: may be offered for enforcement, else ``reason``."""

    rule: str
    window_start: datetime
    window_end: datetime
    scopes: int
    windows: int
    no_data: int
    firings: tuple[TestedFiring, ...]
    false_trips_per_week: Decimal
    requests_refused: int
    tenants: tuple[str, ...]
    offerable: bool
    reason: str


def backtest(
    connection: Connection, rule: Rule, window: Window, now: datetime, incidents: Sequence[Window] = ()
) -> BacktestReport:
    """Replay the rule over ``window`` as of the rollups now. Raises BadInput for more than 92 days or less than one window."""
    cut = _whole(rule, window)
    hold_prices(connection, now)
    prices = decision_prices(connection)
    history = Window(cut.start - max(rule.detector.lookback, rule.detector.recent * rule.window), cut.end)
    found = read_points(connection, rule.metric, rule.scope, history, rule.window, prices)
    told = [alert for alert in list_alerts(connection, cut) if alert.person_said == "acknowledged"]
    firings: list[TestedFiring] = []
    worst, windows, no_data = Decimal(0), 0, 0
    for scope, points in sorted(found.items()):
        run = replay(rule, points.points, cut, REFIT_AFTER)
        known = [*incidents, *(Window(a.window_start, a.recovered_at or now) for a in told if a.scope == scope)]
        worst = max(worst, false_per_week(run.firings, known, cut.duration))
        windows, no_data = windows + run.windows, no_data + run.no_data
        firings += [_tested(connection, rule, scope, points.currency, one, known, prices) for one in run.firings]
    return _report(rule, cut, len(found), windows, no_data, firings, worst)


def _whole(rule: Rule, window: Window) -> Window:
    start, end = floor_time(window.start, rule.window), floor_time(window.end, rule.window)
    if end <= start:
        raise BadInput("holds no whole window of the rule", field="--to", value=window.end.isoformat())
    if end - start > LONGEST:
        raise BadInput(f"is more than {LONGEST.days} days after the start", field="--to", value=window.end.isoformat())
    return Window(start, end)


def _report(
    rule: Rule, window: Window, scopes: int, windows: int, no_data: int, firings: Sequence[TestedFiring], worst: Decimal
) -> BacktestReport:
    reason = ""
    if no_data == windows:
        reason = "nothing was known: no history, too few tokens or no price"
    elif window.duration < ENOUGH:
        reason = f"a back-test needs {ENOUGH.days} days"
    elif worst > MOST_FALSE:
        reason = f"{worst} false trips a week on one scope, {MOST_FALSE} at most"
    tenants = tuple(sorted({tenant for firing in firings for tenant in firing.tenants}))
    refused = sum(firing.requests for firing in firings)
    return BacktestReport(
        rule.name, window.start, window.end, scopes, windows, no_data, tuple(firings), worst, refused, tenants, not reason, reason
    )


def _tested(
    connection: Connection, rule: Rule, scope: str, currency: str, one: Firing, known: Iterable[Window],
    prices: Sequence[UnitPrice],
) -> TestedFiring:  # fmt: skip
    inside = scope if scope.startswith("deployment:") else ""
    tenants = causes(own_work(connection, scope, one.window, one.at_risk, prices)) if inside else (scope,)
    requests = 0
    for tenant in tenants:
        requests += (
            _requests(connection, tenant, Window(one.fired_at, one.ended_at), inside) if one.fired_at < one.ended_at else 0
        )
    v = one.verdict
    money = currency if rule.facts.priced else ""
    return TestedFiring(
        scope, one.started_at, one.fired_at, one.ended_at, one.recovered, not one.touches(known), v.value, v.threshold,
        one.at_risk, money, tenants, requests,
    )  # fmt: skip


def _requests(connection: Connection, tenant: str, window: Window, inside: str) -> int:
    minute = timedelta(minutes=1)
    found = read_points(connection, "requests", tenant, window, minute, inside=inside)
    return sum(round(point.value or 0) for points in found.values() for point in points.points)
