"""Acting on the fleet: what a breaker asks of it, when an action begins and ends, and what a fresh reading says of it.

Pure: adapters read and write (``core.ports.Actuator``), ``control.fleet.actions`` keeps the rows. An action is known by
(breaker, epoch, target, move); while one of an episode stands, or a person ended it, the same decision never acts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, get_args

from core.breaker_values import Breaker
from core.errors import BadInput, Refused
from core.scopes import parse_scope

Move = Literal["freeze", "block", "limit"]
"""freeze: grow no further than now. block: serve nobody. limit: lower rates and budgets to the target's ``options``."""
MOVES: tuple[Move, ...] = get_args(Move)
ActionState = Literal["planned", "applied", "verified", "reverted", "drifted", "failed"]
STANDING: tuple[ActionState, ...] = ("planned", "applied", "verified")
"""States in which an action still has something to do; the others are over."""
LIMITS: tuple[str, ...] = ("rpm_limit", "tpm_limit", "max_budget")


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """One switch outside: whose traffic or capacity it is (``scope``), which actuator works it and under what ``address``.
    ``options`` are what the move ``limit`` sets (requests and tokens a minute; a budget as a decimal string)."""

    id: int
    scope: str
    actuator: str
    address: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a breaker asks now. ``since`` is when its episode began; ``until`` None: until the breaker says otherwise."""

    breaker_id: int
    epoch: int
    scope: str
    move: Move
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class FleetAction:
    """One action. ``before`` is what stood there when it was planned and ``wanted`` what it sets, the same names in both.
    ``tried_at``: when a write was first begun; None: nothing outside was touched. ``end_asked_by``: a person ended it."""

    id: int
    breaker_id: int
    epoch: int
    target: FleetTarget
    move: Move
    state: ActionState
    planned_at: datetime
    before: Mapping[str, Any] = field(default_factory=dict)
    wanted: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None
    tried_at: datetime | None = None
    applied_at: datetime | None = None
    verified_at: datetime | None = None
    ended_at: datetime | None = None
    end_asked_by: str = ""
    detail: str = ""
    commands: tuple[str, ...] = ()

    @property
    def stands(self) -> bool:
        return self.state in STANDING


def wishes(breaker: Breaker, at: datetime) -> tuple[Wish, ...]:
    """What an armed breaker that is not paused asks of the fleet; in shadow it asks nothing."""
    if breaker.paused(at):
        return ()
    found: list[Wish] = []

    def ask(move: Move, until: datetime | None = None) -> None:
        found.append(Wish(breaker.id, breaker.epoch, breaker.scope, move, breaker.since, until))

    if breaker.refuses(at):
        ask("block")
    if breaker.rules_enforced and breaker.phase == "degraded":
        ask("limit")
    if breaker.rules_enforced and breaker.frozen_until is not None and at < breaker.frozen_until:
        ask("freeze", breaker.frozen_until)
    return tuple(found)


def beginning(
    asked: Iterable[Wish], targets: Sequence[FleetTarget], actions: Sequence[FleetAction], moves: Mapping[str, tuple[Move, ...]]
) -> list[tuple[Wish, FleetTarget]]:
    """Wishes that nobody has acted on yet, with the targets inside their scope. ``moves``: what each actuator can do."""
    found = []
    for wish in asked:
        scope = parse_scope(wish.scope)
        for target in targets:
            able = wish.move in moves.get(target.actuator, ()) and (wish.move != "limit" or target.options)
            if able and scope.covers(parse_scope(target.scope)) and not any(_same(wish, target, a) for a in actions):
                found.append((wish, target))
    return found


def _same(wish: Wish, target: FleetTarget, action: FleetAction) -> bool:
    """One switch has one action at a time, whoever asks; of an episode that a person, a stranger or a refusal ended, none."""
    if action.target.id != target.id:
        return False
    if action.stands:
        return action.move == wish.move
    of_this = (action.breaker_id, action.move) == (wish.breaker_id, wish.move) and action.planned_at >= wish.since
    given_up = bool(action.end_asked_by) or action.state in ("drifted", "failed")
    return of_this and (given_up or action.epoch == wish.epoch)


def ending(
    asked: Sequence[Wish], actions: Iterable[FleetAction], enabled: Iterable[str], at: datetime
) -> list[tuple[FleetAction, str]]:
    """Standing actions that are over, and why: expired, ended by a person, switched off, or no longer asked for."""
    switched_on = set(enabled)
    found = []
    for action in actions:
        if not action.stands:
            continue
        why = ""
        if action.end_asked_by:
            why = f"ended by {action.end_asked_by}"
        elif action.expires_at is not None and at >= action.expires_at:
            why = "its time is up"
        elif action.tried_at is not None and action.target.actuator not in switched_on:
            why = "its actuator was switched off"
        elif not any((w.breaker_id, w.move) == (action.breaker_id, action.move) for w in asked):
            why = "the breaker asks for it no longer"
        if why:
            found.append((action, why))
    return found


Found = Literal["wanted", "before", "other"]


def compare(action: FleetAction, present: Mapping[str, Any]) -> Found:
    """Whether what stands there now is what the action wants, what it found, or something a third party set."""
    if all(present.get(name) == value for name, value in action.wanted.items()):
        return "wanted"
    return "before" if all(present.get(name) == value for name, value in action.before.items()) else "other"


def lowered(options: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """Each limit of ``options``, or the present one where that is lower already (None: there is no limit)."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        now = present.get(name)
        found[name] = value if now is None or Decimal(str(value)) < Decimal(str(now)) else now
    return found


def check_limits(options: Mapping[str, Any]) -> dict[str, Any]:
    """Whole requests and tokens a minute, a budget as a plain decimal string. Raises BadInput naming the option."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in LIMITS:
            raise BadInput(f"must be one of {', '.join(LIMITS)}", field=f"options.{name}", value=value)
        try:
            number = Decimal(str(value))
        except ArithmeticError as error:
            raise BadInput("is not a number", field=f"options.{name}", value=value) from error
        if not number.is_finite() or number < 0 or (name != "max_budget" and number != number.to_integral_value()):
            raise BadInput("must be zero or more, requests and tokens whole", field=f"options.{name}", value=value)
        found[name] = format(number.normalize(), "f") if name == "max_budget" else int(number)
    return found


def frozen_size(size: int | None, least: int, name: str) -> int:
    """The largest size from now on: what runs, not under the smallest allowed. Raises Refused when the size is not told."""
    if size is None:
        raise Refused(f"{name} does not tell its present size, so it cannot be frozen at it")
    return max(size, least, 1)
