"""The transactional outbox and the parts' heartbeats: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select, update
from sqlalchemy.dialects.postgresql import insert

from core.ports import Effect
from models.tables_decide import HeartbeatRow, OutboxRow


@dataclass(frozen=True, slots=True)
class Pending:
    """A claimed effect; ``attempts`` counts the deliveries tried before."""

    id: int
    effect: Effect
    attempts: int
    created_at: datetime


def enqueue(connection: Connection, effect: Effect, now: datetime) -> None:
    """Write an effect with the decision it belongs to; a key that is there already changes nothing."""
    row = insert(OutboxRow).values(
        key=effect.key, kind=effect.kind, payload=dict(effect.payload), state="pending", next_at=now, created_at=now
    )
    connection.execute(row.on_conflict_do_nothing(index_elements=["key"]))


def claim(connection: Connection, kinds: Collection[str], now: datetime) -> Pending | None:
    """The oldest due effect of these kinds, its row held until the transaction ends; rows others hold are passed over."""
    o = OutboxRow
    due = (o.state == "pending") & (o.next_at <= now) & o.kind.in_(kinds)
    query = select(o.__table__).where(due).order_by(o.id).limit(1).with_for_update(skip_locked=True)
    row = connection.execute(query).one_or_none()
    return None if row is None else Pending(row.id, Effect(row.key, row.kind, row.payload), row.attempts, row.created_at)


def mark_done(connection: Connection, outbox_id: int, attempts: int, now: datetime) -> None:
    _mark(connection, outbox_id, state="done", attempts=attempts, done_at=now, last_error="")


def mark_retry(connection: Connection, outbox_id: int, attempts: int, next_at: datetime, error: str) -> None:
    _mark(connection, outbox_id, attempts=attempts, next_at=next_at, last_error=error)


def mark_failed(connection: Connection, outbox_id: int, attempts: int, error: str) -> None:
    _mark(connection, outbox_id, state="failed", attempts=attempts, last_error=error)


def _mark(connection: Connection, outbox_id: int, **values: Any) -> None:
    connection.execute(update(OutboxRow).where(OutboxRow.id == outbox_id).values(**values))


def fail_unclaimable(connection: Connection, kinds: Collection[str], created_before: datetime) -> int:
    """Give up effects that no channel of ``kinds`` could carry since ``created_before``; returns how many."""
    o = OutboxRow
    stale = (o.state == "pending") & o.kind.not_in(kinds) & (o.created_at < created_before)
    error = func.concat("no channel for ", o.kind, " is configured")
    return connection.execute(update(o).where(stale).values(state="failed", last_error=error)).rowcount


def outbox_counts(connection: Connection) -> dict[str, int]:
    """Effects by state."""
    rows = connection.execute(select(OutboxRow.state, func.count()).group_by(OutboxRow.state))
    return {row[0]: row[1] for row in rows}


def beat(connection: Connection, name: str, at: datetime, detail: Mapping[str, Any]) -> None:
    """Note that a part lives."""
    row = insert(HeartbeatRow).values(name=name, at=at, detail=dict(detail))
    connection.execute(
        row.on_conflict_do_update(index_elements=["name"], set_={"at": row.excluded.at, "detail": row.excluded.detail})
    )


def list_heartbeats(connection: Connection) -> dict[str, tuple[datetime, Mapping[str, Any]]]:
    """The last sign of life by part."""
    rows = connection.execute(select(HeartbeatRow.name, HeartbeatRow.at, HeartbeatRow.detail))
    return {row[0]: (row[1], row[2]) for row in rows}


def list_effects(connection: Connection, state: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Effects without their payloads, the newest first; ``state``: pending, done or failed."""
    o = OutboxRow
    columns = (o.id, o.key, o.kind, o.state, o.attempts, o.created_at, o.next_at, o.done_at, o.last_error)
    query = select(*columns).order_by(o.id.desc()).limit(limit)
    if state is not None:
        query = query.where(o.state == state)
    return [dict(row._mapping) for row in connection.execute(query)]


def revive(connection: Connection, outbox_id: int, now: datetime) -> dict[str, Any] | None:
    """Put a failed effect back, with its key and no attempt counted; None: there is no failed one of that number."""
    o = OutboxRow
    values = {"state": "pending", "attempts": 0, "next_at": now, "created_at": now}
    failed = (o.id == outbox_id) & (o.state == "failed")
    query = update(o).where(failed).values(values).returning(o.id, o.key, o.kind, o.last_error)
    row = connection.execute(query).one_or_none()
    return None if row is None else dict(row._mapping)
