"""What a channel remembers of its tickets, each step in a transaction of its own: after a crash a ticket is seen as begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import Engine

from models.channel_repo import Ticket, begin_ticket, save_ticket
from models.database import transaction

SETTLE = timedelta(seconds=60)
"""A ticket begun and not found is made again only so long after it was begun: a vendor's search lags behind what it stored."""


class TicketStore(Protocol):
    """Begin, then keep: ``begin`` notes the beginning and returns what is known; ``keep`` writes what was made or read."""

    def begin(self, incident_id: int) -> tuple[Ticket, bool]:
        """The ticket, and whether this call began it."""
        ...

    def keep(self, ticket: Ticket) -> None: ...

    def wait_s(self, ticket: Ticket) -> int:
        """Seconds until a ticket begun before and not found may be made again."""
        ...


@dataclass(frozen=True, slots=True)
class StoredTickets:
    """``TicketStore`` in the database, of one channel."""

    engine: Engine
    channel: str
    now: Callable[[], datetime]

    def begin(self, incident_id: int) -> tuple[Ticket, bool]:
        with transaction(self.engine) as connection:
            return begin_ticket(connection, incident_id, self.channel, self.now())

    def keep(self, ticket: Ticket) -> None:
        with transaction(self.engine) as connection:
            save_ticket(connection, ticket, self.now())

    def wait_s(self, ticket: Ticket) -> int:
        left = ticket.begun_at + SETTLE - self.now()
        return max(0, int(left.total_seconds()))


def made(ticket: Ticket, external_id: str, url: str) -> Ticket:
    return replace(ticket, external_id=external_id, url=url)
