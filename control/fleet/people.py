"""What a person says about the fleet: which switches there are, which actuators may act, and that an action is to end.

Functions take an open transaction; the caller commits. All of it stands in the audit trail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from control.fleet.addresses import check_address
from core.errors import BadInput, Conflict, NotFound
from core.fleet import FleetAction, FleetTarget, check_limits
from core.scopes import parse_scope
from models.audit_repo import append_audit
from models.fleet_action_repo import add_target, list_targets, lock_action, retire_target, save_action, set_switch


def declare_target(
    connection: Connection, scope: str, actuator: str, address: str, options: Mapping[str, Any], actor: str, now: datetime
) -> FleetTarget:
    """Name a switch that may be worked for a scope. Raises BadInput for what no actuator understands, Conflict when known."""
    named = str(parse_scope(scope))
    check_address(actuator, address)
    limits = check_limits(options)
    if limits and actuator != "litellm":
        raise BadInput("only LiteLLM takes limits", field="options", value=", ".join(limits))
    made = add_target(connection, FleetTarget(0, named, actuator, address, limits), actor, now)
    if made is None:
        raise Conflict(f"{actuator} {address} is a target already", hint="see `tokenfuse fleet targets list`")
    detail = {"target": made.id, "actuator": actuator, "address": address, "options": dict(limits)}
    append_audit(connection, now, actor, "fleet.target", named, detail)
    return made


def remove_target(connection: Connection, target_id: int, actor: str, reason: str, now: datetime) -> FleetTarget:
    """Act on it no more; what stands is reverted when it is over. Raises NotFound."""
    found = next((t for t in list_targets(connection) if t.id == target_id), None)
    if found is None or not retire_target(connection, target_id, now):
        raise NotFound(f"there is no fleet target {target_id}", hint="see `tokenfuse fleet targets list`")
    detail = {"target": target_id, "actuator": found.actuator, "address": found.address, "reason": _reason(reason)}
    append_audit(connection, now, actor, "fleet.target_removed", found.scope, detail)
    return found


def switch(connection: Connection, actuator: str, enabled: bool, actor: str, reason: str, now: datetime) -> None:
    """Let an actuator act, or put it back to dry run (what it did is reverted). Raises BadInput for an unknown one."""
    check_address(actuator, None)
    set_switch(connection, actuator, enabled, actor, _reason(reason), now)
    name = "fleet.enabled" if enabled else "fleet.disabled"
    append_audit(connection, now, actor, name, "platform", {"actuator": actuator, "reason": reason})


def ask_end(connection: Connection, action_id: int, actor: str, reason: str, now: datetime) -> FleetAction:
    """End an action by hand: the control loop reverts it, and the same episode does not repeat it. Raises NotFound, Conflict."""
    held = lock_action(connection, action_id)
    if held is None:
        raise NotFound(f"there is no fleet action {action_id}", hint="see `tokenfuse fleet actions`")
    if not held.stands:
        raise Conflict(f"fleet action {action_id} is {held.state}: it is over", hint="see `tokenfuse fleet actions`")
    after = replace(held, end_asked_by=actor)
    save_action(connection, after)
    detail = {"action": action_id, "reason": _reason(reason)}
    append_audit(connection, now, actor, "fleet.end_asked", held.target.scope, detail)
    return after


def _reason(text: str) -> str:
    if not text.strip():
        raise BadInput("must not be empty", field="reason", value=text, hint="say why; it stands in the audit trail")
    return text
