"""Fleet actions carried out: each is planned and written down before anything outside is touched, then applied, looked at again
and, when it is over, reverted.

Level-triggered from the breakers' rows: whatever was missed or cut off by a crash is done by the next pass, what is over first.
Each step holds its action's row, so that two runners never work one action, and compares before it writes: applying twice acts
once, and what somebody else set since is reported (``drifted``) and left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, text

from core import fleet
from core.breaker_values import SYSTEM_ACTOR
from core.errors import Conflict, TokenfuseError, Unavailable
from core.fleet import FleetAction, FleetTarget, Move, Wish
from core.policy import rfc3339
from core.ports import Actuator, Effect, FleetReading
from models.audit_repo import append_audit
from models.breaker_repo import list_breakers
from models.database import transaction
from models.fleet_action_repo import add_action, enabled_actuators, list_actions, list_targets, lock_action, save_action
from models.outbox_repo import enqueue

log = logging.getLogger("tokenfuse.control.fleet")
FLEET_LOCK = 7360712
LOOK_EVERY = timedelta(minutes=1)
"""How often an applied action is looked at again."""
TOLD = ("applied", "reverted", "drifted", "failed")
Step = Callable[[Actuator, FleetAction], FleetAction]


@dataclass(frozen=True, slots=True)
class Registered:
    """An actuator and the moves it can make."""

    actuator: Actuator
    moves: tuple[Move, ...]


Registry = Mapping[str, Registered]


@dataclass(frozen=True, slots=True)
class FleetReport:
    """Actions by what this pass made of them."""

    planned: int = 0
    applied: int = 0
    reverted: int = 0
    drifted: int = 0
    failed: int = 0
    waiting: int = 0


def settle(engine: Engine, registry: Registry, now: datetime) -> FleetReport:
    """One pass: end what is over, plan what is asked, apply what is planned where the actuator is switched on, look again.
    Others wait until it has ended."""
    with transaction(engine) as sole:
        sole.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": FLEET_LOCK})
        return _settle(engine, registry, now)


def _settle(engine: Engine, registry: Registry, now: datetime) -> FleetReport:
    counts = {name: 0 for name in FleetReport.__dataclass_fields__}

    def count(before: FleetAction | None, after: FleetAction | None) -> None:
        if after is not None and (before is None or after.state != before.state) and after.state in counts:
            counts[after.state] += 1
        elif after is not None and after.detail and after.stands and before is not None and after.detail != before.detail:
            counts["waiting"] += 1

    with transaction(engine) as connection:
        asked = [wish for breaker in list_breakers(connection) for wish in fleet.wishes(breaker, now)]
        standing, enabled = list_actions(connection, standing=True), enabled_actuators(connection)
    for action, why in fleet.ending(asked, standing, enabled, now):
        count(action, revert(engine, registry, action, why, now))
    for wish, target in _beginning(engine, asked, registry):
        count(None, plan(engine, registry[target.actuator].actuator, wish, target, now))
    with transaction(engine) as connection:
        standing = list_actions(connection, standing=True)
    for action in reversed(standing):
        count(action, _forward(engine, registry, action, enabled, now))
    return FleetReport(**counts)


def _beginning(engine: Engine, asked: list[Wish], registry: Registry) -> list[tuple[Wish, FleetTarget]]:
    if not asked:
        return []
    able = {name: one.moves for name, one in registry.items()}
    with transaction(engine) as connection:
        return fleet.beginning(asked, list_targets(connection), list_actions(connection), able)


def _forward(engine: Engine, registry: Registry, action: FleetAction, enabled: set[str], now: datetime) -> FleetAction | None:
    if action.target.actuator not in enabled or action.end_asked_by:
        return None
    if action.state == "planned":
        return apply(engine, registry, action, now)
    looked = max(filter(None, (action.verified_at, action.applied_at)), default=now)
    return verify(engine, registry, action, now) if action.state == "applied" or now - looked >= LOOK_EVERY else None


def plan(engine: Engine, actuator: Actuator, wish: Wish, target: FleetTarget, now: datetime) -> FleetAction | None:
    """Read what stands there and write down what would be set. None: it cannot be read now (tried again), or it is planned."""
    action = FleetAction(0, wish.breaker_id, wish.epoch, target, wish.move, "planned", now, expires_at=wish.until)
    try:
        reading = actuator.read(target.address)
        wanted = dict(actuator.wanted(wish.move, target.options, reading))
        before = {name: reading.value.get(name) for name in wanted}
        action = replace(action, wanted=wanted, before=before, commands=actuator.commands(target.address, before))
    except TokenfuseError as error:
        if error.retryable:
            log.warning("fleet: %s %s is not planned yet: %s", target.actuator, target.address, error)
            return None
        action = replace(action, state="failed", detail=str(error), ended_at=now)
    with transaction(engine) as connection:
        made = add_action(connection, action)
        if made is not None:
            _audit(connection, made, now)
    return made


def apply(engine: Engine, registry: Registry, action: FleetAction, now: datetime) -> FleetAction | None:
    """Set what was planned, once: what stands there already is taken as done by an attempt that was cut off."""
    _begin(engine, action, now)

    def step(actuator: Actuator, held: FleetAction) -> FleetAction:
        found = fleet.compare(held, actuator.read(held.target.address).value)
        if found == "other":
            return _drifted(held, "somebody changed it before it was applied: nothing was done", now)
        if found == "before":
            actuator.write(held.target.address, held.before, held.wanted)
        return replace(held, state="applied", applied_at=now, detail="")

    return _hold(engine, registry, action, step, now)


def _begin(engine: Engine, action: FleetAction, now: datetime) -> None:
    """Noted before the first write: after a crash it is known that something outside may have been touched."""
    if action.tried_at is None:
        with transaction(engine) as connection:
            held = lock_action(connection, action.id)
            if held is not None and held.state == "planned" and held.tried_at is None:
                save_action(connection, replace(held, tried_at=now))


def verify(engine: Engine, registry: Registry, action: FleetAction, now: datetime) -> FleetAction | None:
    """Look again: verified, or drifted when something else stands there."""

    def step(actuator: Actuator, held: FleetAction) -> FleetAction:
        if fleet.compare(held, actuator.read(held.target.address).value) == "wanted":
            return replace(held, state="verified", verified_at=now, detail="")
        return _drifted(held, "somebody changed it since: it is left as it is", now)

    return _hold(engine, registry, action, step, now)


def revert(engine: Engine, registry: Registry, action: FleetAction, why: str, now: datetime) -> FleetAction | None:
    """Put back what stood there. What nobody tried to apply is only closed."""

    def step(actuator: Actuator, held: FleetAction) -> FleetAction:
        over = replace(held, state="reverted", ended_at=now, detail=why)
        if held.tried_at is None:
            return replace(over, detail=f"{why}; nothing had been done")
        found = fleet.compare(held, actuator.read(held.target.address).value)
        if found == "other":
            return _drifted(held, f"{why}, and somebody changed it since: it is left as it is", now)
        if found == "wanted":
            actuator.write(held.target.address, held.wanted, held.before)
        return over

    return _hold(engine, registry, action, step, now)


def _drifted(held: FleetAction, detail: str, now: datetime) -> FleetAction:
    return replace(held, state="drifted", ended_at=now, detail=detail)


def _hold(engine: Engine, registry: Registry, action: FleetAction, step: Step, now: datetime) -> FleetAction | None:
    """Do one step under the action's row lock and write down what came of it. Trouble that passes leaves it as it is."""
    with transaction(engine) as connection:
        held = lock_action(connection, action.id)
        if held is None or held.state != action.state:
            return None
        try:
            after = step(_actuator(registry, held), held)
        except Conflict as error:
            after = _drifted(held, str(error), now)
        except TokenfuseError as error:
            after = replace(held, detail=str(error)) if error.retryable else _failed(held, str(error), now)
        save_action(connection, after)
        if after.state != held.state:
            _audit(connection, after, now)
    return after


def _failed(held: FleetAction, detail: str, now: datetime) -> FleetAction:
    return replace(held, state="failed", detail=detail, ended_at=now)


def _actuator(registry: Registry, action: FleetAction) -> Actuator:
    found = registry.get(action.target.actuator)
    return _Unconfigured(action.target.actuator) if found is None else found.actuator


class _Unconfigured:
    """Stands in for an actuator that this process has no connection for: its actions wait."""

    def __init__(self, name: str) -> None:
        self._said = Unavailable(f"actuator {name} is not configured here", hint="see docs/actuators.md")

    def read(self, address: str) -> FleetReading:
        raise self._said

    def wanted(self, move: str, options: Mapping[str, Any], reading: FleetReading) -> Mapping[str, Any]:
        raise self._said

    def write(self, address: str, seen: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        raise self._said

    def commands(self, address: str, value: Mapping[str, Any]) -> tuple[str, ...]:
        raise self._said


def _audit(connection: Connection, action: FleetAction, now: datetime) -> None:
    """On the record, and told to people once something outside changed or went wrong."""
    target = action.target
    told = {
        "action": action.id, "breaker": action.breaker_id, "epoch": action.epoch, "actuator": target.actuator,
        "address": target.address, "move": action.move, "state": action.state, "before": dict(action.before),
        "wanted": dict(action.wanted), "detail": action.detail, "commands": list(action.commands),
    }  # fmt: skip
    append_audit(connection, now, action.end_asked_by or SYSTEM_ACTOR, f"fleet.{action.state}", target.scope, told)
    if action.state in TOLD and action.tried_at is not None:
        reason = f"{action.move} of {target.actuator} {target.address}: {action.state}"
        severity = "page" if action.state == "failed" else "notice"
        more = {"scope": target.scope, "reason": reason, "severity": severity, "at": rfc3339(now), "shadow": False}
        enqueue(connection, Effect(f"fleet:{action.id}:{action.state}", "notify", {**told, **more}), now)
