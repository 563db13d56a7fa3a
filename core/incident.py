"""What an incident is: everything that happens to one scope for one cause, from the first sign until it is calm again.

Pure: a breaker's change or an alert's reading becomes a ``Change``; ``fold`` says what it does to the incident there is.
One breaker episode (from leaving calm to calm again, whatever tiers it goes through) is one incident. A change that tells
nothing new folds to None, so that replaying changes tells nobody twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from core.breaker_values import SYSTEM_ACTOR, Breaker, Trip
from core.money import Money
from core.windows import require_utc

Severity = Literal["notice", "warning", "page"]
SEVERITIES: tuple[Severity, ...] = ("notice", "warning", "page")
MomentKind = Literal["opened", "changed", "recovered", "acknowledged", "assigned", "commented", "reminded"]
BREAKER_CAUSE = "breaker"
REMIND_EVERY: Mapping[Severity, timedelta] = {"page": timedelta(hours=1), "warning": timedelta(hours=4)}
"""How often an incident nobody acknowledged is told again; a notice never is."""


@dataclass(frozen=True, slots=True)
class Change:
    """One reading of a scope and cause. ``at_risk`` and ``spend`` None: not known. ``spend`` is what the tripped period has cost
    by now, on the budget's own basis; ``epoch`` is the breaker's."""

    scope: str
    cause: str
    firing: bool
    severity: Severity
    phase: str
    at: datetime
    actor: str
    reason: str
    shadow: bool = False
    breaker_id: int | None = None
    epoch: int | None = None
    trip: Trip | None = None
    spend: Money | None = None
    at_risk: Money | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """``severity`` is the highest of the episode, ``phase`` the last. ``trip`` is the first one of the episode and ``overshoot``
    the money spent after it, None while open or where it cannot be told (``overshoot_reason``). ``told_at``: when
    people were last told."""

    id: int
    scope: str
    cause: str
    severity: Severity
    phase: str
    shadow: bool
    opened_at: datetime
    told_at: datetime
    seq: int = 1
    owner: str = ""
    reason: str = ""
    breaker_id: int | None = None
    recovered_at: datetime | None = None
    acknowledged_by: str = ""
    acknowledged_at: datetime | None = None
    assignee: str = ""
    at_risk: Money | None = None
    trip: Trip | None = None
    overshoot: Money | None = None
    overshoot_reason: str = ""
    outcome: str = ""

    @property
    def is_open(self) -> bool:
        return self.recovered_at is None


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of an incident's story; (incident, seq) is unique."""

    seq: int
    at: datetime
    kind: MomentKind
    actor: str
    reason: str
    phase: str
    severity: Severity
    shadow: bool
    epoch: int | None = None


Folded = tuple[Incident, Moment]


def breaker_change(before: Breaker, after: Breaker, actor: str, at: datetime, spend: Money | None, owner: str) -> Change:
    """A breaker's recorded change. One held by the blast limit, or over by unmetered money alone, fires: people act on both."""
    shadow = after.paused(at) or not (after.rules_enforced if after.phase in ("warned", "degraded") else after.enforced)
    return Change(
        scope=after.scope,
        cause=BREAKER_CAUSE,
        firing=after.phase != "closed" or after.held or after.over_unmetered,
        severity=_severity(after, shadow),
        phase=after.phase,
        at=at,
        actor=actor,
        reason=after.reason,
        shadow=shadow,
        breaker_id=after.id,
        epoch=after.epoch,
        trip=after.trip or before.trip,
        spend=spend,
        owner=owner,
    )


def _severity(breaker: Breaker, shadow: bool) -> Severity:
    if breaker.held or (breaker.phase == "open" and not shadow):
        return "page"
    return "warning" if breaker.phase == "degraded" and not shadow else "notice"


def fold(incident: Incident | None, change: Change) -> Folded | None:
    """What a change does to the open incident of its scope and cause; None: nothing new. A new incident has id 0."""
    require_utc(change.at)
    if incident is None:
        return _opened(change) if change.firing else None
    if not change.firing:
        return _recovered(incident, change)
    after = replace(
        incident,
        severity=highest(incident.severity, change.severity),
        phase=change.phase,
        shadow=change.shadow,
        reason=change.reason,
        at_risk=change.at_risk or incident.at_risk,
        trip=incident.trip or change.trip,
        owner=incident.owner or change.owner,
    )
    if after == incident:
        return None
    return _told(after, "changed", change.actor, change.reason, change.at, change.epoch)


def _opened(change: Change) -> Folded:
    fresh = Incident(
        id=0,
        scope=change.scope,
        cause=change.cause,
        severity=change.severity,
        phase=change.phase,
        shadow=change.shadow,
        opened_at=change.at,
        told_at=change.at,
        seq=0,
        owner=change.owner,
        reason=change.reason,
        breaker_id=change.breaker_id,
        at_risk=change.at_risk,
        trip=change.trip,
    )
    return _told(fresh, "opened", change.actor, change.reason, change.at, change.epoch)


def _recovered(incident: Incident, change: Change) -> Folded:
    by = "by itself" if change.actor == SYSTEM_ACTOR else f"by {change.actor}"
    amount, reason = overshoot(incident.trip, change.spend, change.at)
    after = replace(
        incident,
        phase=change.phase,
        shadow=change.shadow,
        reason=change.reason,
        recovered_at=change.at,
        overshoot=amount,
        overshoot_reason=reason,
        outcome=f"recovered {by}: {change.reason}",
    )
    return _told(after, "recovered", change.actor, change.reason, change.at, change.epoch)


def overshoot(trip: Trip | None, spend: Money | None, at: datetime) -> tuple[Money | None, str]:
    """Money spent in the tripped period after the trip, or None and why it cannot be told."""
    if trip is None:
        return None, "no cap was reached"
    if at >= trip.period_end:
        return None, "the tripped period is over"
    if spend is None:
        return None, "the spend since the trip is not known"
    return spend - trip.spend, ""


def highest(one: Severity, other: Severity) -> Severity:
    return max(one, other, key=SEVERITIES.index)


def acknowledge(incident: Incident, actor: str, reason: str, at: datetime) -> Folded | None:
    """A person has seen it: no reminder follows. None: somebody has already."""
    if incident.acknowledged_by:
        return None
    return _noted(replace(incident, acknowledged_by=actor, acknowledged_at=at), "acknowledged", actor, reason, at)


def assign(incident: Incident, assignee: str, actor: str, reason: str, at: datetime) -> Folded | None:
    """It is somebody's now. None: it is theirs already."""
    if incident.assignee == assignee:
        return None
    return _noted(replace(incident, assignee=assignee), "assigned", actor, f"to {assignee}: {reason}", at)


def comment(incident: Incident, actor: str, text: str, at: datetime) -> Folded:
    return _noted(incident, "commented", actor, text, at)


def remind(incident: Incident, at: datetime, every: Mapping[Severity, timedelta] = REMIND_EVERY) -> Folded | None:
    """Tell it again, if it is open, nobody acknowledged it and its interval has passed since people were last told."""
    interval = every.get(incident.severity)
    if interval is None or not incident.is_open or incident.acknowledged_by or at < incident.told_at + interval:
        return None
    return _told(incident, "reminded", SYSTEM_ACTOR, incident.reason, at, None)


def _told(incident: Incident, kind: MomentKind, actor: str, reason: str, at: datetime, epoch: int | None) -> Folded:
    return _noted(replace(incident, told_at=at), kind, actor, reason, at, epoch)


def _noted(incident: Incident, kind: MomentKind, actor: str, reason: str, at: datetime, epoch: int | None = None) -> Folded:
    after = replace(incident, seq=incident.seq + 1)
    return after, Moment(after.seq, at, kind, actor, reason, after.phase, after.severity, after.shadow, epoch)
