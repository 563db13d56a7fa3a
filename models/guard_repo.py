"""Guards as the centre sees them: who asked for the policy, when, and which version it holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.postgresql import insert

from models.tables_decide import GuardRow


@dataclass(frozen=True, slots=True)
class GuardSeen:
    """``last_version`` is the policy version the guard said it held; None when it held none."""

    name: str
    kind: str
    last_seen_at: datetime | None
    last_version: int | None


def guard_seen(connection: Connection, name: str, held_version: int | None, now: datetime) -> None:
    """Note that a guard asked; a guard seen for the first time is added (kind gateway). A version it forgot is kept."""
    row = insert(GuardRow).values(name=name, kind="gateway", created_at=now, last_seen_at=now, last_version=held_version)
    kept = func.coalesce(row.excluded.last_version, GuardRow.last_version)
    connection.execute(
        row.on_conflict_do_update(
            index_elements=[GuardRow.name], set_={"last_seen_at": row.excluded.last_seen_at, "last_version": kept}
        )
    )


def list_guards(connection: Connection) -> list[GuardSeen]:
    """Every guard by name."""
    g = GuardRow
    query = select(g.name, g.kind, g.last_seen_at, g.last_version).order_by(g.name)
    return [GuardSeen(r.name, r.kind, r.last_seen_at, r.last_version) for r in connection.execute(query)]
