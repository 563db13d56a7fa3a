"""Incidents in the database: one per scope and cause while open, written in the transaction of what caused the change.

Functions take an open transaction; the caller commits. Whoever finds something (a rule, Alertmanager) calls ``note``; breakers
call ``follow_breaker`` themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection

from control.channels import tell
from core import incident as rules
from core.breaker_values import SYSTEM_ACTOR, Breaker, CapSignal, Reset, Signal
from core.errors import BadInput, Conflict, NotFound
from core.incident import Change, Folded, Incident
from core.money import Money
from core.scopes import parse_scope
from models.audit_repo import append_audit
from models.decide_repo import list_budgets
from models.incident_repo import lock_incident, lock_open, open_since, save_incident


def note(connection: Connection, change: Change) -> Incident | None:
    """Fold one change into the incident of its scope and cause. None: it told nothing new. Raises BadInput for a bad scope."""
    parse_scope(change.scope)
    return _keep(connection, rules.fold(lock_open(connection, change.scope, change.cause), change))


def follow_breaker(connection: Connection, before: Breaker, after: Breaker, signal: Signal, now: datetime) -> Incident | None:
    """Fold a breaker's recorded change. The caller holds the breaker's row."""
    actor: str = getattr(signal, "actor", SYSTEM_ACTOR)
    owner = next((b.budget.owner for b in list_budgets(connection) if str(b.budget.scope) == after.scope), "")
    return note(connection, rules.breaker_change(before, after, actor, now, _spend(before, signal), owner))


def _spend(before: Breaker, signal: Signal) -> Money | None:
    """What the tripped period has cost by now, as far as the signal tells."""
    if isinstance(signal, Reset):
        return signal.spend
    if isinstance(signal, CapSignal) and before.trip is not None:
        tripped = (before.trip.period, before.trip.period_end)
        return next((r.spend for r in signal.readings if (r.period, r.period_end) == tripped), None)
    return None


def acknowledge(connection: Connection, incident_id: int, actor: str, reason: str, now: datetime) -> Incident:
    """A named person has seen it: no reminder follows. Raises NotFound, Conflict when somebody has already."""

    def act(incident: Incident) -> Folded:
        found = rules.acknowledge(incident, actor, reason, now)
        if found is None:
            raise Conflict(f"incident {incident.id} was acknowledged by {incident.acknowledged_by}")
        return found

    return _by_person(connection, incident_id, actor, reason, act, now)


def assign(connection: Connection, incident_id: int, assignee: str, actor: str, reason: str, now: datetime) -> Incident:
    """Say whose it is. Raises NotFound, Conflict when it is theirs already."""

    def act(incident: Incident) -> Folded:
        found = rules.assign(incident, assignee, actor, reason, now)
        if found is None:
            raise Conflict(f"incident {incident.id} is {assignee}'s already")
        return found

    return _by_person(connection, incident_id, actor, reason, act, now)


def comment(connection: Connection, incident_id: int, actor: str, text: str, now: datetime) -> Incident:
    """Add a person's words to the story, also after it recovered. Raises NotFound."""
    return _by_person(connection, incident_id, actor, text, lambda i: rules.comment(i, actor, text, now), now)


def remind_due(connection: Connection, now: datetime) -> list[Incident]:
    """Tell again what nobody acknowledged for its interval; returns the incidents told."""
    shortest = min(rules.REMIND_EVERY.values())
    told = []
    for incident_id in open_since(connection, now - shortest):
        incident = lock_incident(connection, incident_id)
        kept = None if incident is None else _keep(connection, rules.remind(incident, now))
        if kept is not None:
            told.append(kept)
    return told


def _by_person(
    connection: Connection, incident_id: int, actor: str, reason: str, act: Callable[[Incident], Folded], now: datetime
) -> Incident:
    for field, value in (("actor", actor), ("reason", reason)):
        if not value.strip():
            raise BadInput("must not be empty", field=field, value=value, hint="it goes into the incident's story")
    before = lock_incident(connection, incident_id)
    if before is None:
        raise NotFound(f"there is no incident {incident_id}", hint="list them with `tokenfuse incidents list`")
    after, moment = act(before)
    detail = {"incident": after.id, "seq": moment.seq, "reason": moment.reason}
    append_audit(connection, now, actor, f"incident.{moment.kind}", after.scope, detail)
    kept = _keep(connection, (after, moment))
    assert kept is not None
    return kept


def _keep(connection: Connection, folded: Folded | None) -> Incident | None:
    """Write what was folded, and tell the channels of it."""
    if folded is None:
        return None
    kept = save_incident(connection, *folded)
    tell(connection, kept, folded[1])
    return kept
