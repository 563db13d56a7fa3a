"""Channels: which there are, what goes to each, a test message, and tickets read back.

An incident's moment becomes one effect per channel that a route sends it to, written in the transaction of the moment.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import httpx
from sqlalchemy import Connection, Engine

from control.notify.http_call import NotTaken
from control.notify.jira import JiraEffector
from control.notify.kinds import check_channel, effector_of
from core import incident as rules
from core.errors import BadInput, NotFound, TokenfuseError
from core.incident import Incident, Moment
from core.message import snapshot
from core.policy import rfc3339
from core.ports import Delivery, Effect, Effector
from core.routing import is_routed
from models.audit_repo import append_audit
from models.channel_repo import Channel, Ticket, drop_channel, list_channels, put_channel, save_ticket, tickets_to_sync
from models.database import transaction
from models.incident_repo import lock_incident, save_incident
from models.outbox_repo import enqueue

log = logging.getLogger("tokenfuse.control")
PREFIX = "channel:"
SYNC_EVERY = timedelta(minutes=1)


def tell(connection: Connection, incident: Incident, moment: Moment) -> None:
    """Write the effects of one moment of an incident."""
    for channel in list_channels(connection):
        if is_routed(channel.routes, incident):
            key = f"incident:{incident.id}:{moment.seq}:{channel.name}"
            enqueue(connection, Effect(key, PREFIX + channel.name, snapshot(incident, moment)), moment.at)


def channel_effectors(engine: Engine, now: Callable[[], datetime], environ: Mapping[str, str]) -> dict[str, Effector]:
    """The channels there are now, by kind of effect."""
    with transaction(engine) as connection:
        channels = list_channels(connection)
    return {PREFIX + one.name: effector_of(one, engine, now, environ) for one in channels}


def add_channel(connection: Connection, channel: Channel, actor: str, now: datetime) -> None:
    """Write a channel in place of the one of that name. Raises BadInput."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", channel.name):
        raise BadInput("must be 1 to 40 small letters, digits and dashes", field="name", value=channel.name)
    put_channel(connection, check_channel(channel), actor, now)
    routes = [f"{r.scope} {r.severity} {r.owner}".strip() for r in channel.routes]
    append_audit(connection, now, actor, "channel.set", channel.name, {"kind": channel.kind, "routes": routes})


def remove_channel(connection: Connection, name: str, actor: str, now: datetime) -> None:
    """Raises NotFound. What waits for it in the outbox is given up by name after a day."""
    if not drop_channel(connection, name):
        raise NotFound(f"there is no channel {name!r}", hint="list them with `tokenfuse channel list`")
    append_audit(connection, now, actor, "channel.remove", name, {})


def find_channel(connection: Connection, name: str) -> Channel:
    """Raises NotFound."""
    for channel in list_channels(connection):
        if channel.name == name:
            return channel
    raise NotFound(f"there is no channel {name!r}", hint="list them with `tokenfuse channel list`")


def send_test(
    engine: Engine, name: str, actor: str, now: Callable[[], datetime], environ: Mapping[str, str]
) -> tuple[Incident, Delivery]:
    """Open and end a test incident that only this channel is told of, delivered at once; returns it and how the first went."""
    with transaction(engine) as connection:
        channel, at = find_channel(connection, name), now()
        change = rules.Change("platform", f"test:{name}", True, "notice", "test", at, actor, f"a test by {actor}")
        begun = rules.fold(None, change)
        assert begun is not None
        opened = save_incident(connection, *begun)
        over = rules.fold(
            opened, rules.Change("platform", f"test:{name}", False, "notice", "over", at, actor, "the test is over")
        )
        assert over is not None
        ended = save_incident(connection, *over)
    effector = effector_of(channel, engine, now, environ)
    told = None
    for incident, moment in ((opened, begun[1]), (ended, over[1])):
        effect = Effect(f"incident:{incident.id}:{moment.seq}:{name}", PREFIX + name, snapshot(incident, moment))
        delivery = effector.deliver(effect)
        told = told if told is not None and told.outcome == "delivered" and delivery.outcome == "delivered" else delivery
        if delivery.outcome != "delivered":
            break
    assert told is not None
    return ended, told


def sync_tickets(engine: Engine, now: Callable[[], datetime], environ: Mapping[str, str]) -> int:
    """Read status and assignee of open incidents' tickets back; returns how many changed."""
    with transaction(engine) as connection:
        channels = list_channels(connection)
    changed = 0
    for channel in channels:
        effector = effector_of(channel, engine, now, environ)
        if not isinstance(effector, JiraEffector):
            continue
        with transaction(engine) as connection:
            due = tickets_to_sync(connection, channel.name, now() - SYNC_EVERY)
        for ticket in due:
            try:
                changed += _synced(engine, ticket, effector.read(ticket), now())
            except (NotTaken, TokenfuseError, httpx.HTTPError, OSError, KeyError, TypeError) as error:
                log.warning("ticket %s of channel %s cannot be read (%s)", ticket.external_id, channel.name, type(error).__name__)
                break
    return changed


def _synced(engine: Engine, before: Ticket, after: Ticket, now: datetime) -> bool:
    """Keep what was read, and put a change into the incident's story, which is told to no channel."""
    with transaction(engine) as connection:
        save_ticket(connection, after, now)
        if after == before:
            return False
        incident = lock_incident(connection, before.incident_id)
        if incident is not None:
            told = f"{after.external_id} is {after.status}, {after.assignee or 'nobody'} is assigned ({rfc3339(now)})"
            save_incident(connection, *rules.comment(incident, f"channel {after.channel}", told, now))
    return True
