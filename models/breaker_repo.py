"""Breakers and their events: rows <-> core values. The caller owns the transaction; ``lock_breaker`` holds one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from core.breaker_values import Breaker, Phase, PreSigned, Trip
from core.money import Money, plain
from models.tables_decide import BreakerEventRow, BreakerRow

TIMES = ("firing_since", "clear_since", "quiet_until", "rung_since", "frozen_until")
PLAIN = ("rules_enforced", "held", "over_unmetered", "rung", "review_asked")


@dataclass(frozen=True, slots=True)
class BreakerEvent:
    """One recorded change; (breaker_id, epoch) is unique."""

    breaker_id: int
    epoch: int
    at: datetime
    from_phase: str
    to_phase: str
    shadow: bool
    actor: str
    reason: str
    detail: Mapping[str, Any]


def ensure_breaker(connection: Connection, scope: str, now: datetime, quiet_until: datetime) -> None:
    """Make the scope's breaker, closed and in shadow, unless it exists."""
    fresh = Breaker(0, scope, now, now, quiet_until=quiet_until)
    row = upsert(BreakerRow).values({"scope": scope, "created_at": now, **_row(fresh)})
    connection.execute(row.on_conflict_do_nothing(index_elements=["scope"]))


def list_breakers(connection: Connection) -> list[Breaker]:
    """Every breaker, by id."""
    return [_breaker(row) for row in connection.execute(select(BreakerRow.__table__).order_by(BreakerRow.id))]


def lock_breaker(connection: Connection, breaker_id: int) -> Breaker | None:
    """Read one breaker and hold its row until the transaction ends."""
    query = select(BreakerRow.__table__).where(BreakerRow.id == breaker_id).with_for_update()
    row = connection.execute(query).one_or_none()
    return None if row is None else _breaker(row)


def save_breaker(connection: Connection, breaker: Breaker) -> None:
    connection.execute(update(BreakerRow).where(BreakerRow.id == breaker.id).values(_row(breaker)))


def add_event(connection: Connection, event: BreakerEvent) -> None:
    row = {name: getattr(event, name) for name in BreakerEvent.__dataclass_fields__}
    connection.execute(insert(BreakerEventRow).values({**row, "detail": dict(event.detail)}))


def list_events(connection: Connection, limit: int = 100, breaker_id: int | None = None) -> list[BreakerEvent]:
    """The newest events first, of all breakers or of one."""
    e = BreakerEventRow
    columns = [getattr(e, name) for name in BreakerEvent.__dataclass_fields__]
    query = select(*columns).order_by(e.id.desc()).limit(limit)
    if breaker_id is not None:
        query = query.where(e.breaker_id == breaker_id)
    return [BreakerEvent(*row) for row in connection.execute(query)]


def _row(b: Breaker) -> dict[str, Any]:
    return {
        "phase": b.phase, "epoch": b.epoch, "enforced": b.enforced, "since": b.since, "reason": b.reason,
        "paused_until": b.paused_until, "state": _state(b),
    }  # fmt: skip


def _state(b: Breaker) -> dict[str, Any]:
    state: dict[str, Any] = {name: getattr(b, name) for name in PLAIN}
    state |= {name: _iso(getattr(b, name)) for name in TIMES}
    state["culprits"] = list(b.culprits)
    state["trip"] = b.trip and {
        "period": b.trip.period, "period_end": _iso(b.trip.period_end), "spend": plain(b.trip.spend.amount),
        "cap": plain(b.trip.cap.amount), "currency": b.trip.cap.currency,
    }  # fmt: skip
    signed = b.presigned
    state["presigned"] = signed and {"actor": signed.actor, "reason": signed.reason, "at": _iso(signed.at)}
    return state


def _breaker(row: Any) -> Breaker:
    state, trip, signed = row.state, row.state["trip"], row.state["presigned"]
    kept: dict[str, Any] = {name: state[name] for name in PLAIN}
    kept |= {name: state[name] and _time(state[name]) for name in TIMES}
    return Breaker(
        id=row.id,
        scope=row.scope,
        created_at=row.created_at,
        since=row.since,
        phase=cast(Phase, row.phase),
        epoch=row.epoch,
        enforced=row.enforced,
        reason=row.reason,
        paused_until=row.paused_until,
        culprits=tuple(state["culprits"]),
        trip=trip and _trip(trip),
        presigned=signed and PreSigned(signed["actor"], signed["reason"], _time(signed["at"])),
        **kept,
    )


def _trip(trip: dict[str, str]) -> Trip:
    spend, cap = (Money(Decimal(trip[name]), trip["currency"]) for name in ("spend", "cap"))
    return Trip(trip["period"], _time(trip["period_end"]), spend, cap)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
