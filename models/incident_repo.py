"""Incidents in the database: rows <-> core values. The caller owns the transaction; ``lock_*`` hold until it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, insert, select, text, update

from core.breaker_values import Trip
from core.incident import Incident, Moment
from core.money import Money
from models.tables_decide import OutboxRow
from models.tables_incident import IncidentMomentRow, IncidentRow

LOCK_CLASS = 7360710
_PLAIN = (
    "scope", "cause", "severity", "phase", "shadow", "opened_at", "told_at", "seq", "owner", "reason", "breaker_id",
    "recovered_at", "acknowledged_by", "acknowledged_at", "assignee", "overshoot_reason", "outcome",
)  # fmt: skip


def lock_open(connection: Connection, scope: str, cause: str) -> Incident | None:
    """The open incident of a scope and cause. Others who ask for the same wait, also where there is none yet."""
    key = {"class": LOCK_CLASS, "key": f"{scope}\n{cause}"}
    connection.execute(text("SELECT pg_advisory_xact_lock(:class, hashtext(:key))"), key)
    i = IncidentRow
    wanted = (i.scope == scope) & (i.cause == cause) & i.recovered_at.is_(None)
    return _one(connection, select(i.__table__).where(wanted).with_for_update())


def lock_incident(connection: Connection, incident_id: int) -> Incident | None:
    return _one(connection, select(IncidentRow.__table__).where(IncidentRow.id == incident_id).with_for_update())


def find_incident(connection: Connection, incident_id: int) -> Incident | None:
    return _one(connection, select(IncidentRow.__table__).where(IncidentRow.id == incident_id))


def list_incidents(connection: Connection, *, is_open: bool | None = None, limit: int | None = 100) -> list[Incident]:
    """The newest first; ``is_open`` None: open and recovered ones. ``limit`` None: all."""
    query = select(IncidentRow.__table__).order_by(IncidentRow.id.desc()).limit(limit)
    if is_open is not None:
        query = query.where(IncidentRow.recovered_at.is_(None) if is_open else IncidentRow.recovered_at.is_not(None))
    return [_incident(row) for row in connection.execute(query)]


def save_incident(connection: Connection, incident: Incident, moment: Moment) -> Incident:
    """Write an incident (id 0: a new one) and the moment that changed it; returns it with its id."""
    if incident.id == 0:
        made = insert(IncidentRow).values(_row(incident)).returning(IncidentRow.id)
        incident = replace(incident, id=connection.execute(made).scalar_one())
    else:
        connection.execute(update(IncidentRow).where(IncidentRow.id == incident.id).values(_row(incident)))
    row = {name: getattr(moment, name) for name in Moment.__dataclass_fields__}
    connection.execute(insert(IncidentMomentRow).values({"incident_id": incident.id, **row}))
    return incident


def list_moments(connection: Connection, incident_id: int) -> list[Moment]:
    """The story, from the beginning."""
    m = IncidentMomentRow
    columns = [getattr(m, name) for name in Moment.__dataclass_fields__]
    query = select(*columns).where(m.incident_id == incident_id).order_by(m.seq)
    return [Moment(*row) for row in connection.execute(query)]


def effects_of(connection: Connection, incident: Incident, moments: list[Moment]) -> list[dict[str, Any]]:
    """What was sent and done for an incident: its own messages and the effects of its breaker's epochs, oldest first."""
    o = OutboxRow
    epochs = [m.epoch for m in moments if m.epoch is not None] if incident.breaker_id is not None else []
    wanted = o.key.startswith(f"incident:{incident.id}:", autoescape=True)
    for epoch in epochs:
        wanted |= o.key.startswith(f"breaker:{incident.breaker_id}:{epoch}:", autoescape=True)
    columns = (o.id, o.key, o.kind, o.state, o.attempts, o.created_at, o.done_at, o.last_error)
    return [dict(row._mapping) for row in connection.execute(select(*columns).where(wanted).order_by(o.id))]


def open_since(connection: Connection, told_before: datetime) -> list[int]:
    """Open incidents nobody acknowledged, last told before an instant."""
    i = IncidentRow
    wanted = i.recovered_at.is_(None) & (i.acknowledged_by == "") & (i.told_at <= told_before)
    return list(connection.execute(select(i.id).where(wanted).order_by(i.id)).scalars())


def _one(connection: Connection, query: Select[Any]) -> Incident | None:
    row = connection.execute(query).one_or_none()
    return None if row is None else _incident(row)


def _row(incident: Incident) -> dict[str, Any]:
    trip, risk = incident.trip, incident.at_risk
    return {
        **{name: getattr(incident, name) for name in _PLAIN},
        "at_risk": None if risk is None else risk.amount,
        "at_risk_currency": None if risk is None else risk.currency,
        "trip_spend": None if trip is None else trip.spend.amount,
        "trip_cap": None if trip is None else trip.cap.amount,
        "trip_currency": None if trip is None else trip.cap.currency,
        "trip_period": None if trip is None else trip.period,
        "trip_period_end": None if trip is None else trip.period_end,
        "overshoot": None if incident.overshoot is None else incident.overshoot.amount,
    }


def _incident(row: Any) -> Incident:
    currency = row.trip_currency
    trip = None
    if currency is not None:
        trip = Trip(row.trip_period, row.trip_period_end, Money(row.trip_spend, currency), Money(row.trip_cap, currency))
    return Incident(
        id=row.id,
        **{name: getattr(row, name) for name in _PLAIN},
        at_risk=None if row.at_risk is None else Money(row.at_risk, row.at_risk_currency),
        trip=trip,
        overshoot=None if row.overshoot is None else Money(row.overshoot, currency),
    )
