"""Fleet targets, switches and actions: rows <-> core values. The caller owns the transaction; ``lock_action`` holds one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from core.fleet import STANDING, FleetAction, FleetTarget
from models.tables_fleet_action import FleetActionRow, FleetSwitchRow, FleetTargetRow

_PLAIN = (
    "breaker_id", "epoch", "move", "state", "planned_at", "expires_at", "tried_at", "applied_at", "verified_at", "ended_at",
    "end_asked_by", "detail",
)  # fmt: skip


def add_target(connection: Connection, target: FleetTarget, by: str, now: datetime) -> FleetTarget | None:
    """Note a switch; None when its address is taken already."""
    row = upsert(FleetTargetRow).values(
        scope=target.scope, actuator=target.actuator, address=target.address, options=dict(target.options),
        created_by=by, created_at=now,
    )  # fmt: skip
    made = connection.execute(row.on_conflict_do_nothing().returning(FleetTargetRow.id)).scalar_one_or_none()
    return None if made is None else replace(target, id=made)


def retire_target(connection: Connection, target_id: int, now: datetime) -> bool:
    t = FleetTargetRow
    wanted = (t.id == target_id) & t.retired_at.is_(None)
    return connection.execute(update(t).where(wanted).values(retired_at=now)).rowcount == 1


def list_targets(connection: Connection) -> list[FleetTarget]:
    """Those that are acted on, by id."""
    t = FleetTargetRow
    return [_target(row) for row in connection.execute(select(t.__table__).where(t.retired_at.is_(None)).order_by(t.id))]


def set_switch(connection: Connection, actuator: str, enabled: bool, by: str, reason: str, now: datetime) -> None:
    values = {"enabled": enabled, "changed_by": by, "changed_at": now, "reason": reason}
    row = upsert(FleetSwitchRow).values(actuator=actuator, **values)
    connection.execute(row.on_conflict_do_update(index_elements=["actuator"], set_=values))


def list_switches(connection: Connection) -> dict[str, Mapping[str, Any]]:
    """What was last said of each actuator: enabled, changed_by, changed_at, reason."""
    rows = connection.execute(select(FleetSwitchRow.__table__))
    return {row.actuator: {k: v for k, v in row._mapping.items() if k != "actuator"} for row in rows}


def enabled_actuators(connection: Connection) -> set[str]:
    return {name for name, row in list_switches(connection).items() if row["enabled"]}


def add_action(connection: Connection, action: FleetAction) -> FleetAction | None:
    """Note a planned action; None when (breaker, epoch, target, move) has one."""
    row = upsert(FleetActionRow).values(target_id=action.target.id, **_row(action))
    made = connection.execute(row.on_conflict_do_nothing().returning(FleetActionRow.id)).scalar_one_or_none()
    return None if made is None else replace(action, id=made)


def save_action(connection: Connection, action: FleetAction) -> None:
    connection.execute(update(FleetActionRow).where(FleetActionRow.id == action.id).values(_row(action)))


def list_actions(
    connection: Connection, *, standing: bool = False, breaker_id: int | None = None, limit: int | None = None
) -> list[FleetAction]:
    """The newest first; ``standing``: only those that are not over."""
    a = FleetActionRow
    query = _select().order_by(a.id.desc()).limit(limit)
    if standing:
        query = query.where(a.state.in_(STANDING))
    if breaker_id is not None:
        query = query.where(a.breaker_id == breaker_id)
    return [_action(row) for row in connection.execute(query)]


def lock_action(connection: Connection, action_id: int) -> FleetAction | None:
    """Read one action and hold its row until the transaction ends."""
    query = _select().where(FleetActionRow.id == action_id).with_for_update(of=FleetActionRow)
    row = connection.execute(query).one_or_none()
    return None if row is None else _action(row)


def _select() -> Any:
    a, t = FleetActionRow, FleetTargetRow
    columns = [getattr(a, name) for name in ("id", "before", "wanted", "commands", *_PLAIN)]
    of_target = [t.id.label("target_id"), t.scope, t.actuator, t.address, t.options]
    return select(*columns, *of_target).join(t, t.id == a.target_id)


def _row(action: FleetAction) -> dict[str, Any]:
    return {
        **{name: getattr(action, name) for name in _PLAIN},
        "before": dict(action.before), "wanted": dict(action.wanted), "commands": list(action.commands),
    }  # fmt: skip


def _target(row: Any) -> FleetTarget:
    return FleetTarget(row.id, row.scope, row.actuator, row.address, row.options)


def _action(row: Any) -> FleetAction:
    target = FleetTarget(row.target_id, row.scope, row.actuator, row.address, row.options)
    return FleetAction(
        id=row.id, target=target, before=row.before, wanted=row.wanted, commands=tuple(row.commands),
        **{name: getattr(row, name) for name in _PLAIN},
    )  # fmt: skip
