"""An incident as pages and commands show it: the row, and the whole story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from core.breaker_values import SYSTEM_ACTOR
from core.budgets import Budget
from core.errors import NotFound
from core.incident import Incident, overshoot
from core.money import Money
from core.scopes import parse_scope
from models.channel_repo import list_tickets
from models.decide_repo import find_budget
from models.incident_repo import effects_of, find_incident, list_moments

BudgetSpend = Callable[[Connection, Budget, datetime], Money | None]


def incident_row(incident: Incident) -> dict[str, Any]:
    """One row; money as amounts with their currency, None where it is not known."""
    trip = incident.trip
    return {
        "id": incident.id,
        "scope": incident.scope,
        "cause": incident.cause,
        "severity": incident.severity,
        "phase": incident.phase,
        "shadow": incident.shadow,
        "is_open": incident.is_open,
        "opened_at": incident.opened_at,
        "recovered_at": incident.recovered_at,
        "reason": incident.reason,
        "owner": incident.owner,
        "assignee": incident.assignee,
        "acknowledged_by": incident.acknowledged_by,
        "acknowledged_at": incident.acknowledged_at,
        "breaker_id": incident.breaker_id,
        "at_risk": _money(incident.at_risk),
        "trip": trip
        and {
            "period": trip.period,
            "period_end": trip.period_end,
            "spend": trip.spend.amount,
            "cap": trip.cap.amount,
            "currency": trip.cap.currency,
        },
        "overshoot": _money(incident.overshoot),
        "overshoot_reason": incident.overshoot_reason,
        "outcome": incident.outcome,
    }


def _money(value: Money | None) -> dict[str, Any] | None:
    return None if value is None else {"amount": value.amount, "currency": value.currency}


def get_incident(connection: Connection, incident_id: int) -> Incident:
    """Raises NotFound."""
    found = find_incident(connection, incident_id)
    if found is None:
        raise NotFound(f"there is no incident {incident_id}", hint="list them: `tokenfuse incidents list`, GET /v1/incidents")
    return found


def story(connection: Connection, incident_id: int, now: datetime, spend: BudgetSpend) -> dict[str, Any]:
    """Signal, numbers, decisions, what was sent, people and outcome. While it is open the overshoot is measured now.

    Raises NotFound.
    """
    incident = measured(connection, get_incident(connection, incident_id), now, spend)
    moments = list_moments(connection, incident_id)
    people = dict.fromkeys(m.actor for m in moments if m.actor != SYSTEM_ACTOR)
    return {
        "incident": incident_row(incident),
        "moments": [asdict(moment) for moment in moments],
        "sent": effects_of(connection, incident, moments),
        "people": list(people),
        "tickets": [asdict(ticket) for ticket in list_tickets(connection, incident_id)],
    }


def measured(connection: Connection, incident: Incident, now: datetime, spend: BudgetSpend) -> Incident:
    """An open incident with the money spent since its trip; a recovered one keeps what was measured when it ended."""
    if not incident.is_open:
        return incident
    trip, spent = incident.trip, None
    if trip is not None and now < trip.period_end:
        stored = find_budget(connection, parse_scope(incident.scope), trip.period)
        spent = None if stored is None else spend(connection, stored.budget, now)
        spent = spent if spent is not None and spent.currency == trip.spend.currency else None
    amount, reason = overshoot(trip, spent, now)
    return replace(incident, overshoot=amount, overshoot_reason=reason)
