"""What guards are told: entries from breakers, standing limits and exemptions, and the identity rules; a new version when they
change or grow old.

Level-triggered: whatever the rows say is published, so a missed wake-up or a crash costs at most one tick. Each version is
re-issued well before it expires, so that guards never run out while the centre lives.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from core.breaker_values import Breaker
from core.identity_guard import MAX_BYTES, carried, fitted, section
from core.identity_state import IdentityState
from core.ladder import LadderPolicy, ladder_entries
from core.money import plain
from core.policy import PolicyEntry, digest, next_version
from core.scopes import parse_scope
from models.breaker_repo import list_breakers
from models.decide_repo import Exemption, StandingLimit, list_exemptions, list_limits, notify
from models.identity_repo import newer_state
from models.policy_repo import PolicyHead, PublishedPolicy, add_policy, lock_publishing, policy_head

LOG = logging.getLogger("tokenfuse.control.policy")
POLICY_TTL = timedelta(minutes=15)
REISSUE_SHARE = 3
"""A version is issued anew after a third of its life: two failed attempts still leave guards with a valid one."""
RETRY_AFTER_S = (30, 90)
"""Refused clients are told to come back after a time in this range, spread by decision so that they do not return as one."""
PRIORITY_OPEN = 300
LADDER = LadderPolicy()


def build_entries(
    breakers: Iterable[Breaker], limits: Sequence[StandingLimit], exemptions: Sequence[Exemption], at: datetime
) -> tuple[PolicyEntry, ...]:
    """The entries in a stable order. While the platform is paused all are shadow: counted, not obeyed."""
    breakers = list(breakers)
    paused = any(b.scope == "platform" and b.paused(at) for b in breakers)
    opened = [_open_entry(b, exemptions, paused, at) for b in breakers if b.phase == "open"]
    ordered = sorted(limits, key=lambda limit: (limit.scope, limit.mode, limit.name))
    groups = groupby(ordered, key=lambda limit: (limit.scope, limit.mode))
    degraded = [
        entry for b in breakers for entry in ladder_entries(b, LADDER, lambda s: _exempt(s, exemptions), at, paused=paused)
    ]
    return (*opened, *degraded, *(_limit_entry(list(group), exemptions, paused) for _, group in groups))


def _open_entry(breaker: Breaker, exemptions: Sequence[Exemption], paused: bool, at: datetime) -> PolicyEntry:
    lowest, highest = RETRY_AFTER_S
    spread = zlib.crc32(f"{breaker.id}:{breaker.epoch}".encode()) % (highest - lowest + 1)
    return PolicyEntry(
        id=f"breaker:{breaker.id}",
        scope=breaker.scope,
        tier=3,
        action="reject",
        reason=_refusal(breaker),
        priority=PRIORITY_OPEN,
        retry_after_s=lowest + spread,
        exempt=_exempt(breaker.scope, exemptions),
        shadow=paused or not breaker.refuses(at),
        breaker=breaker.id,
        epoch=breaker.epoch,
    )


def _refusal(breaker: Breaker) -> str:
    trip = breaker.trip
    if trip is None:
        return "the budget's hard limit is reached"
    return f"the {trip.period} budget's hard limit of {plain(trip.cap.amount)} {trip.cap.currency} is nearly used up"


def _limit_entry(limits: Sequence[StandingLimit], exemptions: Sequence[Exemption], paused: bool) -> PolicyEntry:
    first = limits[0]
    return PolicyEntry(
        id=f"limit:{first.scope}:{first.mode}",
        scope=first.scope,
        tier=0,
        action="limit",
        reason="standing limit",
        limits={limit.name: limit.value for limit in limits},
        exempt=_exempt(first.scope, exemptions),
        shadow=paused,
        mode=first.mode,
    )


def _exempt(scope_text: str, exemptions: Sequence[Exemption]) -> tuple[str, ...]:
    """Exemptions that can meet the scope: of another kind, around it, or inside it."""
    scope = parse_scope(scope_text)
    found = set()
    for exemption in exemptions:
        other = parse_scope(exemption.scope)
        if other.kind != scope.kind or other.covers(scope) or scope.covers(other):
            found.add(exemption.scope)
    return tuple(sorted(found))


class GuardRules:
    """The identity rules for guards, made anew only when the rules, a key's name or the versions in force changed."""

    def __init__(self) -> None:
        self._state = IdentityState()
        self._of: tuple[str, tuple[int, ...]] | None = None
        self._section: dict[str, Any] | None = None

    def section(self, connection: Connection, now: datetime) -> dict[str, Any] | None:
        """What guards are told from ``now`` on; None without rules."""
        self._state = newer_state(connection, self._state.revision) or self._state
        of = (self._state.revision, tuple(version.version for version in carried(self._state.versions, now)))
        if of != self._of:
            self._section, left_out = fitted(section(self._state, now))
            self._of = of
            if left_out:
                LOG.error("guards are not told %s: more than %d bytes", left_out, MAX_BYTES)
        return self._section


def publish(
    connection: Connection, now: datetime, ttl: timedelta = POLICY_TTL, rules: GuardRules | None = None
) -> PublishedPolicy | None:
    """Publish a new version if entries or identity rules changed or the last one grows old; None when nothing was due.

    Version = max(last + 1, unix milliseconds). Wakes ``tokenfuse_policy`` with the version when the transaction commits.
    """
    entries = build_entries(list_breakers(connection), list_limits(connection), list_exemptions(connection, now), now)
    identity = (rules or GuardRules()).section(connection, now)
    told = digest(entries, identity)
    if not _due(policy_head(connection), told, now, ttl):
        return None
    lock_publishing(connection)
    last = policy_head(connection)
    if not _due(last, told, now, ttl):
        return None
    version = next_version(last.version if last else None, now)
    published = add_policy(connection, version, now, now + ttl, entries, identity)
    notify(connection, "tokenfuse_policy", str(version))
    return published


def _due(last: PolicyHead | None, told: str, now: datetime, ttl: timedelta) -> bool:
    return last is None or last.digest != told or now >= last.issued_at + ttl / REISSUE_SHARE
