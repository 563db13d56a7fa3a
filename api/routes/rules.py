"""Rules and alerts: what is watched, what fired, what a person makes of it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Path, Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import From, To, parse_window
from api.schemas.errors import error_responses
from api.schemas.rules import (
    AlertAnswerIn,
    AlertOut,
    AlertsOut,
    BacktestOut,
    RuleName,
    RulesChanged,
    RulesIn,
    RulesOut,
)
from api.tenancy import may_see, require_all_tenants, require_own
from control import rules as control
from control.rule_backtest import backtest
from core.errors import NotFound
from core.rules import rule_as, rule_from
from models.rule_repo import StoredRule, StoredState, find_alert, list_alerts, list_rules, read_states

reads = router("read", tags=["rules"])
writes = router("operate", tags=["rules"])
CHANGE = error_responses(404, 409, 413, 422)
AlertId = Annotated[int, Path(ge=1, le=2**62)]


@reads.get("/v1/rules", response_model=RulesOut)
def rules(caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Rules in force, and how each stands on every scope you may see. Empty until the control loop ran for the first time."""
    states: dict[str, list[StoredState]] = {}
    for state in read_states(connection):
        if may_see(caller, state.scope):
            states.setdefault(state.rule, []).append(state)
    return {"rules": [_rule(stored, states.get(stored.rule.name, [])) for stored in list_rules(connection)]}


@writes.post("/v1/rules", response_model=RulesChanged, responses=CHANGE)
def post_rules(body: RulesIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Store rules. A new one begins in shadow unless it says otherwise."""
    require_all_tenants(caller, "a change of rules")
    given = [rule_from(one, f"body.rules[{n}]") for n, one in enumerate(body.rules)]
    control.seed_rules(connection, parts.now())
    return {"changed": control.set_rules(connection, given, caller.name, parts.now())}


@reads.get("/v1/rules/{name}/backtest", response_model=BacktestOut, responses=error_responses(404))
def rule_backtest(
    name: Annotated[RuleName, Path()], parts: PartsDep, caller: CallerDep, connection: ConnectionDep, since: From = None,
    until: To = None,
) -> dict[str, Any]:  # fmt: skip
    """What the rule would have done over that time (default: the last 14 days, 92 at most)."""
    require_all_tenants(caller, "a back-test")
    window = parse_window(since, until, parts.now(), timedelta(days=14))
    stored = control.find_rule(connection, name)
    return asdict(backtest(connection, stored.rule, window, parts.now()))


@reads.get("/v1/alerts", response_model=AlertsOut)
def alerts(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, since: From = None, until: To = None,
    rule: Annotated[RuleName | None, Query(description="Of this rule alone.")] = None,
    open_only: Annotated[bool, Query(description="true: those that still fire.")] = False,
) -> dict[str, Any]:  # fmt: skip
    """Firings that touch the time range (default: the last 7 days), newest first, 1000 at most."""
    window = parse_window(since, until, parts.now(), timedelta(days=7))
    found = list_alerts(connection, window, rule, open_only=open_only)
    return {"alerts": [asdict(alert) for alert in found if may_see(caller, alert.scope)]}


@writes.post("/v1/alerts/{alert_id}/ack", response_model=AlertOut, responses=CHANGE)
def ack(alert_id: AlertId, body: AlertAnswerIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """A real incident, and somebody is at it: a back-test counts it as labelled."""
    return _answer(alert_id, "ack", body, parts, caller, connection)


@writes.post("/v1/alerts/{alert_id}/ignore", response_model=AlertOut, responses=CHANGE)
def ignore(
    alert_id: AlertId, body: AlertAnswerIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """This is usual: its time belongs to the baseline from the next refit on."""
    return _answer(alert_id, "ignore", body, parts, caller, connection)


def _answer(
    alert_id: int, what: str, body: AlertAnswerIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    alert = find_alert(connection, alert_id)
    if alert is None:
        raise NotFound(f"there is no alert {alert_id}", hint="list them: GET /v1/alerts")
    require_own(caller, alert.scope)
    return asdict(control.answer_alert(connection, alert_id, what, caller.name, body.reason, parts.now()))


def _rule(stored: StoredRule, states: list[StoredState]) -> dict[str, Any]:
    facts = stored.rule.facts
    return {
        "name": stored.rule.name, "version": stored.version, "made_by": stored.made_by, "made_at": stored.made_at,
        "rule": rule_as(stored.rule), "unit": facts.unit, "metric_title": facts.title, "scopes": [_scope(s) for s in states],
    }  # fmt: skip


def _scope(s: StoredState) -> dict[str, Any]:
    return {
        "scope": s.scope, "state": s.shown or "NO_DATA", "firing": s.state.firing, "since": s.state.since,
        "judged_to": s.state.window_end, "value": s.verdict.value, "threshold": s.verdict.threshold, "usual": s.verdict.usual,
        "reason": s.verdict.reason,
    }  # fmt: skip
