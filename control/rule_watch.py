"""Rules against the rollups: each window that is settled is judged once, states fold, alerts begin and end. Level-triggered.

A window is judged when the stream is level with the log and the window ended ``SETTLE`` ago; while the stream catches up nothing
is judged and everything is held. Usage that comes later belongs to the history, not to the verdict. A rule is one transaction:
states, alerts and effects together, so a crash or a second runner judges nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Engine

from control.rule_why import as_told, own_work
from control.rules import seed_rules
from core.detect import Baseline, Verdict
from core.policy import rfc3339
from core.ports import Effect
from core.rule_backtest import Judged, judge_windows
from core.rule_fold import Event, RuleState, fold
from core.rules import Rule
from core.series import series_of
from core.windows import Window, floor_time
from models.database import transaction
from models.decision_price_repo import PriceChange, UnitPrice, decision_prices, hold_prices
from models.outbox_repo import enqueue
from models.quality_repo import stream_lags
from models.rule_repo import (
    Alert,
    StoredRule,
    StoredState,
    add_alert,
    add_at_risk,
    end_alerts,
    incident_windows,
    judged_until,
    list_rules,
    read_states,
    save_states,
)
from models.rule_series import ScopePoints, read_points

log = logging.getLogger("tokenfuse.control")
SETTLE = timedelta(seconds=60)
"""How long after its end a window is judged: requests that just ended in it have come by then."""
CATCH_UP = timedelta(hours=2)
"""After a stop so much is judged window by window; what is older is history."""
REFIT_AFTER = timedelta(hours=6)
REFITS_A_PASS = 4
"""A refit reads days of rollups; one pass does so for this many rules, the longest waiting first."""
NOT_MADE = "the baseline is not made yet"


@dataclass(frozen=True, slots=True)
class RuleReport:
    """One pass: rules evaluated, windows judged, events, rules that failed with the reason. ``held``: the stream is behind."""

    rules: int = 0
    windows: int = 0
    events: tuple[tuple[str, str, Event], ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    held: bool = False


@dataclass(slots=True)
class _Pass:
    now: datetime
    settled: datetime
    prices: Sequence[UnitPrice]
    refits: int = REFITS_A_PASS
    windows: int = 0
    events: list[tuple[str, str, Event]] = field(default_factory=list)


def watch_rules(engine: Engine, now: datetime) -> RuleReport:
    """Evaluate every enabled rule whose newest window is settled. One rule's failure does not stop the others."""
    with transaction(engine) as connection:
        seed_rules(connection, now)
        settled = settled_until(connection, now)
        if settled is None:
            return RuleReport(held=True)
        for change in hold_prices(connection, now):
            _tell_price(connection, change, now)
        stored = [rule for rule in list_rules(connection) if rule.rule.enabled]
        one = _Pass(now, settled, decision_prices(connection))
        judged = judged_until(connection)
    failed: dict[str, str] = {}
    never = datetime.min.replace(tzinfo=now.tzinfo)
    for rule in sorted(stored, key=lambda r: (judged.get(r.rule.name, (never,))[0], r.rule.name)):
        _, window_end = judged.get(rule.rule.name, (never, None))
        if window_end is not None and window_end >= floor_time(settled, rule.rule.window):
            continue
        try:
            with transaction(engine) as connection:
                evaluate(connection, rule, one)
        except Exception as error:
            log.exception("rule %s could not be evaluated", rule.rule.name)
            failed[rule.rule.name] = f"{type(error).__name__}: {error}"
    return RuleReport(len(stored), one.windows, tuple(one.events), failed)


def settled_until(connection: Connection, now: datetime) -> datetime | None:
    """Up to when windows may be judged; None while usage or engines are behind."""
    lags = [lag for lag in stream_lags(connection, now) if lag.topic in ("usage", "engine")]
    if any(lag.catching_up or lag.behind_lines for lag in lags):
        return None
    return min((lag.updated_at for lag in lags), default=now) - SETTLE


def evaluate(connection: Connection, stored: StoredRule, one: _Pass) -> None:
    """Judge the rule's settled windows that were not judged yet."""
    rule, step = stored.rule, stored.rule.window
    known = {state.scope: state for state in read_states(connection, rule.name)}
    end = floor_time(one.settled, step)
    judged_to = max((s.state.window_end for s in known.values() if s.state.window_end), default=end - step)
    begin = max(judged_to, end - max(_whole_steps(CATCH_UP, step), step))
    if begin >= end:
        return
    basis = _basis(stored, one.prices)
    states = _refit(connection, rule, known, basis, begin, one)
    found = read_points(connection, rule.metric, rule.scope, Window(begin - rule.detector.recent * step, end), step, one.prices)
    for scope in sorted(found.keys() - states.keys()):
        new = Baseline(reason=NOT_MADE) if rule.detector.lookback else rule.detector.fit(series_of(()))
        states[scope] = StoredState(rule.name, scope, basis, new, one.now, RuleState(), Verdict("no_data"), "")
    after = [_folded(connection, rule, states[scope], found.get(scope), Window(begin, end), one) for scope in sorted(states)]
    save_states(connection, after, known)


def _whole_steps(span: timedelta, step: timedelta) -> timedelta:
    return span // step * step


def _basis(stored: StoredRule, prices: Sequence[UnitPrice]) -> str:
    """Another basis is another rule or, for a priced metric, another price: baselines begin anew."""
    priced = "; ".join(f"{p.deployment}: {p.key}" for p in prices) if stored.rule.facts.priced else ""
    return f"{stored.version} {priced}".strip()


def _refit(
    connection: Connection, rule: Rule, known: Mapping[str, StoredState], basis: str, begin: datetime, one: _Pass
) -> dict[str, StoredState]:
    """The states, with baselines made anew where they are old, of another basis or missing."""
    fresh = known and all(s.basis == basis and one.now - s.baseline_at < REFIT_AFTER for s in known.values())
    if fresh or (one.refits <= 0 and rule.detector.lookback):
        return dict(known)
    one.refits -= bool(rule.detector.lookback)
    found = read_history(connection, rule, begin, one.prices)
    incidents = incident_windows(connection, rule.name, begin - rule.detector.lookback, one.now)
    states: dict[str, StoredState] = {}
    for scope in known.keys() | found.keys():
        series = series_of(found[scope].points if scope in found else (), min_tokens=rule.min_tokens)
        baseline = rule.detector.fit(series.without(incidents.get(scope, ())))
        before = known.get(scope)
        state, verdict, shown = (before.state, before.verdict, before.shown) if before else (RuleState(), Verdict("no_data"), "")
        states[scope] = StoredState(rule.name, scope, basis, baseline, one.now, state, verdict, shown)
    return states


def read_history(connection: Connection, rule: Rule, begin: datetime, prices: Sequence[UnitPrice]) -> dict[str, ScopePoints]:
    """What a baseline of windows from ``begin`` on is made of; nothing for a detector without history."""
    if not rule.detector.lookback:
        return {}
    history = Window(begin - rule.detector.lookback, begin)
    return read_points(connection, rule.metric, rule.scope, history, rule.window, prices)


def _folded(
    connection: Connection, rule: Rule, stored: StoredState, found: ScopePoints | None, window: Window, one: _Pass
) -> StoredState:
    state, verdict = stored.state, stored.verdict
    risk = Decimal(0)
    for judged in judge_windows(rule, stored.baseline, found.points if found else (), window):
        verdict = judged.verdict
        firing = verdict.level == "firing"
        risk = risk + (judged.at_risk or 0) if firing else Decimal(0) if not state.firing else risk
        state, event = fold(rule.timing, state, verdict, judged.window.start, judged.window.end)
        one.windows += 1
        if event == "fired":
            known_risk = None if judged.at_risk is None else risk
            _fire(connection, rule, stored.scope, state, judged, known_risk, found.currency if found else "", one)
            risk = Decimal(0)
        elif event == "recovered":
            _recover(connection, rule, stored.scope, state, verdict, one.now)
        if event:
            one.events.append((rule.name, stored.scope, event))
    if state.firing and risk:
        add_at_risk(connection, rule.name, stored.scope, risk)
    return replace(stored, state=state, verdict=verdict, shown=state.shown(rule.severity, rule.timing))


def _fire(
    connection: Connection, rule: Rule, scope: str, state: RuleState, judged: Judged, risk: Decimal | None, currency: str,
    one: _Pass,
) -> None:  # fmt: skip
    v, first = judged.verdict, state.firing_since or judged.window.start
    alert = Alert(
        0, rule.name, scope, state.epoch, rule.severity, rule.tier, rule.shadow, first, judged.window.end, None, v.value or 0.0,
        v.threshold or 0.0, v.usual, v.reason, risk, currency if rule.facts.priced else "",
        _why(connection, rule, scope, Window(first, judged.window.end), risk, one),
    )  # fmt: skip
    if add_alert(connection, alert):
        _tell(connection, rule, "fired", alert, one.now)


def _why(
    connection: Connection, rule: Rule, scope: str, firing: Window, risk: Decimal | None, one: _Pass
) -> dict[str, Any]:  # fmt: skip
    """Whose work it is, of a deployment's cost; other metrics have no money to explain."""
    if not rule.facts.priced or not scope.startswith("deployment:"):
        return {}
    return as_told(own_work(connection, scope, firing, risk, one.prices))


def _recover(connection: Connection, rule: Rule, scope: str, state: RuleState, verdict: Verdict, now: datetime) -> None:
    for alert in end_alerts(connection, rule.name, scope, state.window_end or now):
        _tell(connection, rule, "recovered", replace(alert, epoch=state.epoch, reason=verdict.reason), now)


def _tell(connection: Connection, rule: Rule, event: Event, alert: Alert, now: datetime) -> None:
    """A rule in shadow tells nobody; its alerts are kept."""
    if rule.shadow:
        return
    told = {key: value for key, value in asdict(alert).items() if key in _TOLD}
    payload = {
        **told, "what": "alert", "event": event, "severity": rule.severity, "owner": rule.owner, "channels": list(rule.channels),
        "remedy": rule.remedy, "metric": rule.metric, "unit": rule.facts.unit, "at": rfc3339(now),
        "at_risk": None if alert.at_risk is None else str(alert.at_risk), "fired_at": rfc3339(alert.fired_at),
    }  # fmt: skip
    enqueue(connection, Effect(f"rule:{rule.name}:{alert.scope}:{alert.epoch}", "notify", payload), now)


_TOLD = ("rule", "scope", "epoch", "tier", "value", "threshold", "usual", "reason", "currency", "why")


def _tell_price(connection: Connection, change: PriceChange, now: datetime) -> None:
    """A new price or way of weighing starts new baselines and is a notice; it moves no tier."""
    if change.before is None:
        return
    scope = f"deployment:{change.deployment}"
    payload = {
        "what": "decision_price", "severity": "notice", "scope": scope, "at": rfc3339(now),
        "reason": f"decision price changed from {change.before} to {change.after}: baselines of cost begin anew",
    }  # fmt: skip
    enqueue(connection, Effect(f"decision_price:{scope}:{rfc3339(now)}", "notify", payload), now)
