"""The breaker's commands to the fleet (``freeze_scale_out``, ``unfreeze_scale_out``) as effects of the outbox.

What to do stands in the breakers' rows; an effect only has it done at once, and waits until it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Engine

from control.fleet.actions import Registry, settle
from control.fleet.registry import FleetSettings, registry
from core.ports import Delivery, Effect, Effector
from models.database import transaction
from models.fleet_action_repo import enabled_actuators, list_actions

KINDS = ("freeze_scale_out", "unfreeze_scale_out")


def fleet_effectors(engine: Engine, settings: FleetSettings, now: Callable[[], datetime]) -> dict[str, Effector]:
    """The channel of each of the breaker's commands to the fleet."""
    made = FleetEffector(engine, registry(settings), now)
    return dict.fromkeys(KINDS, made)


class FleetEffector:
    """Delivering a key twice acts once: the second pass finds nothing to do."""

    def __init__(self, engine: Engine, registry: Registry, now: Callable[[], datetime]) -> None:
        self._engine, self._registry, self._now = engine, registry, now

    def deliver(self, effect: Effect) -> Delivery:
        settle(self._engine, self._registry, self._now())
        with transaction(self._engine) as connection:
            enabled = enabled_actuators(connection)
            mine = list_actions(connection, breaker_id=int(effect.payload["breaker"]))
        freezes = [action for action in mine if action.move == "freeze"]
        late = "applied" if effect.kind == "unfreeze_scale_out" else "planned"
        waiting = [a for a in freezes if a.state == late and a.detail and a.target.actuator in enabled]
        if waiting:
            return Delivery("retry", waiting[0].detail)
        states = ", ".join(f"{a.target.actuator} {a.target.address}: {a.state}" for a in freezes if a.epoch or a.stands)
        return Delivery("delivered", states or "no target of this scope can be frozen")
