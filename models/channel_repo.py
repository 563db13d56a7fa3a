"""Channels, their routes and the tickets made in them: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from core.message import Language
from core.routing import Route, route_of
from models.tables_incident import IncidentRow
from models.tables_notify import ChannelRouteRow, ChannelRow, IncidentTicketRow


@dataclass(frozen=True, slots=True)
class Channel:
    """``secrets`` maps what is needed to where it is: env:NAME or file:PATH."""

    name: str
    kind: str
    config: Mapping[str, Any]
    secrets: Mapping[str, str]
    language: Language
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class Ticket:
    """``external_id`` '': begun at ``begun_at``, and whether it was made is to be asked."""

    incident_id: int
    channel: str
    external_id: str
    url: str
    status: str
    assignee: str
    begun_at: datetime


def put_channel(connection: Connection, channel: Channel, actor: str, now: datetime) -> None:
    """Write a channel and its routes in place of those of that name."""
    values = {
        "kind": channel.kind,
        "config": dict(channel.config),
        "secrets": dict(channel.secrets),
        "language": channel.language,
    }
    row = insert(ChannelRow).values({"name": channel.name, "created_by": actor, "created_at": now, **values})
    connection.execute(row.on_conflict_do_update(index_elements=["name"], set_=values))
    connection.execute(delete(ChannelRouteRow).where(ChannelRouteRow.channel == channel.name))
    routes = [{"channel": channel.name, "scope": str(r.scope), "severity": r.severity, "owner": r.owner} for r in channel.routes]
    if routes:
        connection.execute(insert(ChannelRouteRow), routes)


def drop_channel(connection: Connection, name: str) -> bool:
    """Remove a channel and its routes; tickets made in it stay known."""
    return connection.execute(delete(ChannelRow).where(ChannelRow.name == name)).rowcount > 0


def list_channels(connection: Connection) -> list[Channel]:
    """Every channel by name, with its routes."""
    r = ChannelRouteRow
    found: dict[str, list[Route]] = {}
    for name, scope, severity, owner in connection.execute(select(r.channel, r.scope, r.severity, r.owner).order_by(r.id)):
        found.setdefault(name, []).append(route_of(scope, severity, owner))
    rows = connection.execute(select(ChannelRow.__table__).order_by(ChannelRow.name))
    return [_channel(row, found.get(row.name, [])) for row in rows]


def _channel(row: Any, routes: Sequence[Route]) -> Channel:
    return Channel(row.name, row.kind, row.config, row.secrets, cast(Language, row.language), tuple(routes))


def begin_ticket(connection: Connection, incident_id: int, channel: str, now: datetime) -> tuple[Ticket, bool]:
    """Note that a ticket is about to be made, unless that is noted already; returns what is known and whether it is new."""
    t = IncidentTicketRow
    fresh = {
        "incident_id": incident_id, "channel": channel, "external_id": "", "url": "", "status": "", "assignee": "",
        "begun_at": now,
    }  # fmt: skip
    begun = insert(t).values(fresh).on_conflict_do_nothing().returning(t.incident_id)
    is_new = connection.execute(begun).first() is not None
    wanted = (t.incident_id == incident_id) & (t.channel == channel)
    return _ticket(connection.execute(select(t.__table__).where(wanted)).one()), is_new


def save_ticket(connection: Connection, ticket: Ticket, now: datetime) -> None:
    t = IncidentTicketRow
    values = {name: getattr(ticket, name) for name in ("external_id", "url", "status", "assignee")}
    wanted = (t.incident_id == ticket.incident_id) & (t.channel == ticket.channel)
    connection.execute(update(t).where(wanted).values({**values, "synced_at": now}))


def list_tickets(connection: Connection, incident_id: int) -> list[Ticket]:
    t = IncidentTicketRow
    query = select(t.__table__).where((t.incident_id == incident_id) & (t.external_id != "")).order_by(t.channel)
    return [_ticket(row) for row in connection.execute(query)]


def tickets_to_sync(connection: Connection, channel: str, synced_before: datetime) -> list[Ticket]:
    """Tickets made in a channel whose incidents are open, not looked at since an instant; the longest ago first."""
    t, i = IncidentTicketRow, IncidentRow
    query = select(t.__table__).join(i, i.id == t.incident_id).order_by(t.synced_at).limit(50)
    wanted = (t.channel == channel) & (t.external_id != "") & i.recovered_at.is_(None) & (t.synced_at <= synced_before)
    return [_ticket(row) for row in connection.execute(query.where(wanted))]


def _ticket(row: Any) -> Ticket:
    return Ticket(row.incident_id, row.channel, row.external_id, row.url, row.status, row.assignee, row.begun_at)
