"""Incidents to tell: their moments as effects, and a ticket store in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from core.breaker_values import Trip
from core.incident import Change, Incident, Moment, fold
from core.message import snapshot
from core.money import money
from core.ports import Effect
from models.channel_repo import Ticket

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
TRIP = Trip("day", AT + timedelta(hours=12), money("95.25", "USD"), money("100", "USD"))
REASON = 'spend 95.25 of cap 100 USD {panic} *big* [x] "quoted" <b>&\\ 原因 – größer'
OPENED = Change("tenant:acme/red", "breaker", True, "page", "open", AT, "control", REASON, breaker_id=7, epoch=3, trip=TRIP)
CHANGED = replace(OPENED, reason="paused by ann", actor="ann", shadow=True, at=AT + timedelta(minutes=1))
OVER = replace(OPENED, firing=False, phase="closed", actor="ann", reason="legitimate", at=AT + timedelta(minutes=2))


def effects(channel: str = "ops", incident: int = 12) -> list[Effect]:
    """Opened, changed, recovered."""
    found, held = [], None
    for change in (OPENED, CHANGED, OVER):
        folded = fold(held, change)
        assert folded is not None
        held = replace(folded[0], id=incident)
        found.append(effect_of(held, folded[1], channel))
    return found


def effect_of(incident: Incident, moment: Moment, channel: str) -> Effect:
    return Effect(f"incident:{incident.id}:{moment.seq}:{channel}", f"channel:{channel}", snapshot(incident, moment))


@dataclass
class MemoryTickets:
    """``control.notify.ticket_store.TicketStore`` in memory; ``waits`` is what a ticket begun before has to wait."""

    waits: int = 0
    held: dict[int, Ticket] = field(default_factory=dict)

    def begin(self, incident_id: int) -> tuple[Ticket, bool]:
        is_new = incident_id not in self.held
        ticket = self.held.setdefault(incident_id, Ticket(incident_id, "ops", "", "", "", "", AT))
        return ticket, is_new

    def keep(self, ticket: Ticket) -> None:
        self.held[ticket.incident_id] = ticket

    def wait_s(self, ticket: Ticket) -> int:
        return self.waits
