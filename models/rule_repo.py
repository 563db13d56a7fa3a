"""Rules, their states and alerts: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from core.detect import Baseline, Bound, Verdict
from core.rule_fold import RuleState
from core.rules import Rule, rule_as, rule_from
from core.windows import Window
from models.tables_rules import AlertRow, RuleRow, RuleStateRow

FOLDED = tuple(RuleState.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class StoredRule:
    """The version in force."""

    rule: Rule
    version: int
    made_by: str
    made_at: datetime


@dataclass(frozen=True, slots=True)
class StoredState:
    """A rule on one scope; ``basis`` names what its baseline was made for."""

    rule: str
    scope: str
    basis: str
    baseline: Baseline
    baseline_at: datetime
    state: RuleState
    verdict: Verdict
    shown: str


@dataclass(frozen=True, slots=True)
class Alert:
    """One firing. ``at_risk`` None: not known. ``person_said``: acknowledged, ignored or ''."""

    id: int
    rule: str
    scope: str
    epoch: int
    severity: str
    tier: int
    shadow: bool
    window_start: datetime
    fired_at: datetime
    recovered_at: datetime | None
    value: float
    threshold: float
    usual: float | None
    reason: str
    at_risk: Decimal | None
    currency: str
    why: Mapping[str, Any] = field(default_factory=dict)
    person: str = ""
    person_said: str = ""
    person_reason: str = ""
    person_at: datetime | None = None


def list_rules(connection: Connection) -> list[StoredRule]:
    """The rules in force, by name."""
    rows = connection.execute(select(RuleRow.__table__).where(RuleRow.retired_at.is_(None)).order_by(RuleRow.name))
    return [StoredRule(rule_from(row.body, f"rule {row.name}"), row.version, row.made_by, row.made_at) for row in rows]


def rule_names_ever(connection: Connection) -> set[str]:
    return set(connection.execute(select(RuleRow.name).distinct()).scalars())


def put_rule(connection: Connection, rule: Rule, actor: str, now: datetime) -> int:
    """Write the rule's next version and retire the one in force; returns the version. Writers of one rule wait for each other."""
    connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"rule {rule.name}", 0))))
    last = connection.execute(select(func.max(RuleRow.version)).where(RuleRow.name == rule.name)).scalar() or 0
    retire_rule(connection, rule.name, now)
    row = {"name": rule.name, "version": last + 1, "body": rule_as(rule), "made_by": actor, "made_at": now}
    connection.execute(insert(RuleRow).values(row))
    return last + 1


def retire_rule(connection: Connection, name: str, now: datetime) -> bool:
    """Take the rule in force away; False when there was none."""
    mine = (RuleRow.name == name) & RuleRow.retired_at.is_(None)
    return connection.execute(update(RuleRow).where(mine).values(retired_at=now)).rowcount > 0


def read_states(connection: Connection, rule: str | None = None) -> list[StoredState]:
    """What was last folded of each scope, by rule and scope."""
    query = select(RuleStateRow.__table__).order_by(RuleStateRow.rule, RuleStateRow.scope)
    rows = connection.execute(query if rule is None else query.where(RuleStateRow.rule == rule))
    return [_state(row) for row in rows]


def judged_until(connection: Connection) -> dict[str, tuple[datetime, datetime | None]]:
    """By rule its oldest baseline and the end of the last window judged (None: none was), without reading its states."""
    states = RuleStateRow
    query = select(states.rule, func.min(states.baseline_at), func.max(states.window_end)).group_by(states.rule)
    return {rule: (baseline_at, window_end) for rule, baseline_at, window_end in connection.execute(query)}


def _state(row: Any) -> StoredState:
    told = row.baseline
    bounds = {name: Bound(*bound) for name, bound in told["bounds"].items()}
    return StoredState(
        row.rule,
        row.scope,
        row.basis,
        Baseline(bounds, told["windows"], told["reason"]),
        row.baseline_at,
        RuleState(**{name: getattr(row, name) for name in FOLDED}),
        Verdict(**row.verdict),
        row.shown,
    )


def save_states(connection: Connection, states: Iterable[StoredState], known: Mapping[str, StoredState]) -> None:
    """Keep the states of a rule by scope; a baseline is written only where it is another than in ``known``."""
    fresh: list[StoredState] = []
    moved: list[StoredState] = []
    for state in states:
        before = known.get(state.scope)
        same = before is not None and (before.basis, before.baseline_at) == (state.basis, state.baseline_at)
        (moved if same else fresh).append(state)
    if fresh:
        query = upsert(RuleStateRow)
        names = ("basis", "baseline", "baseline_at", *FOLDED, "verdict", "shown")
        changed = {name: query.excluded[name] for name in names}
        rows = [{"rule": s.rule, "scope": s.scope, **_baseline(s), **_folded(s)} for s in fresh]
        connection.execute(query.on_conflict_do_update(index_elements=["rule", "scope"], set_=changed), rows)
    if moved:
        change = update(RuleStateRow).where(
            RuleStateRow.rule == bindparam("of_rule"), RuleStateRow.scope == bindparam("of_scope")
        )
        rows = [{"of_rule": s.rule, "of_scope": s.scope, **_folded(s)} for s in moved]
        columns: dict[str, Any] = {name: bindparam(name) for name in (*FOLDED, "verdict", "shown")}
        connection.execute(change.values(columns), rows)


def _baseline(s: StoredState) -> dict[str, Any]:
    bounds = {name: [b.fire, b.clear, b.centre, b.windows, b.direction] for name, b in s.baseline.bounds.items()}
    told = {"bounds": bounds, "windows": s.baseline.windows, "reason": s.baseline.reason}
    return {"basis": s.basis, "baseline": told, "baseline_at": s.baseline_at}


def _folded(s: StoredState) -> dict[str, Any]:
    return {**{name: getattr(s.state, name) for name in FOLDED}, "verdict": asdict(s.verdict), "shown": s.shown}


def rest_states(connection: Connection, rule: str) -> None:
    """A rule is switched off: nothing fires and durations begin anew; epochs go on, for they key what was sent."""
    s = RuleStateRow
    calm = {"firing": False, "firing_since": None, "clear_since": None, "no_data_since": None, "shown": "NO_DATA", "basis": ""}
    moved = case((s.firing, s.epoch + 1), else_=s.epoch)
    connection.execute(update(s).where(s.rule == rule).values(epoch=moved, **calm))


def add_alert(connection: Connection, alert: Alert) -> bool:
    """Keep a firing; False where its key is there already."""
    row = {name: getattr(alert, name) for name in Alert.__dataclass_fields__ if name != "id"}
    made = upsert(AlertRow).values({**row, "why": dict(alert.why)}).on_conflict_do_nothing().returning(AlertRow.id)
    return connection.execute(made).first() is not None


def end_alerts(connection: Connection, rule: str, scope: str | None, at: datetime) -> list[Alert]:
    """The open firings of a rule (on one scope) end; returns them as they are then."""
    a = AlertRow
    mine = (a.rule == rule) & a.recovered_at.is_(None)
    mine = mine if scope is None else mine & (a.scope == scope)
    rows = connection.execute(update(a).where(mine).values(recovered_at=at).returning(a.__table__))
    return [_alert(row) for row in rows]


def add_at_risk(connection: Connection, rule: str, scope: str, more: Decimal) -> None:
    """A further window of an open firing put ``more`` at risk."""
    a = AlertRow
    mine = (a.rule == rule) & (a.scope == scope) & a.recovered_at.is_(None) & a.at_risk.is_not(None)
    connection.execute(update(a).where(mine).values(at_risk=a.at_risk + more))


def person_says(connection: Connection, alert_id: int, said: str, actor: str, reason: str, now: datetime) -> Alert | None:
    """What a person made of an alert; None when there is no such alert."""
    values = {"person": actor, "person_said": said, "person_reason": reason, "person_at": now}
    row = connection.execute(
        update(AlertRow).where(AlertRow.id == alert_id).values(values).returning(AlertRow.__table__)
    ).one_or_none()
    return None if row is None else _alert(row)


def find_alert(connection: Connection, alert_id: int) -> Alert | None:
    row = connection.execute(select(AlertRow.__table__).where(AlertRow.id == alert_id)).one_or_none()
    return None if row is None else _alert(row)


def list_alerts(
    connection: Connection, window: Window, rule: str | None = None, *, open_only: bool = False, limit: int = 1000
) -> list[Alert]:
    """Firings that touch ``window``, newest first."""
    a = AlertRow
    query = select(a.__table__).where(a.fired_at < window.end).order_by(a.fired_at.desc(), a.id.desc()).limit(limit)
    query = query.where(a.recovered_at.is_(None) | (a.recovered_at >= window.start))
    query = query if rule is None else query.where(a.rule == rule)
    return [_alert(row) for row in connection.execute(query.where(a.recovered_at.is_(None)) if open_only else query)]


def incident_windows(connection: Connection, rule: str, since: datetime, now: datetime) -> dict[str, list[Window]]:
    """Per scope the time in which the rule fired, from its first firing window on. What a person ignored is usual."""
    a = AlertRow
    query = select(a.scope, a.window_start, func.coalesce(a.recovered_at, now)).where(a.rule == rule)
    query = query.where(a.person_said != "ignored", func.coalesce(a.recovered_at, now) > since)
    found: dict[str, list[Window]] = {}
    for scope, start, end in connection.execute(query):
        found.setdefault(scope, []).append(Window(start, max(end, start + timedelta(minutes=1))))
    return found


def _alert(row: Any) -> Alert:
    return Alert(**{name: getattr(row, name) for name in Alert.__dataclass_fields__})
