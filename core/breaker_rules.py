"""Tiers 1 and 2 of the breaker: warn and recover by itself, degrade only those who cause the excess, recover by review."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from core.breaker_values import Breaker, BreakerPolicy, CommandKind, RuleSignal

Found = tuple[Breaker, tuple[CommandKind, ...]]


def step_rules(policy: BreakerPolicy, breaker: Breaker, signal: RuleSignal, at: datetime) -> Found:
    """Fold one rule signal. While catching up or without data the state holds; only the scale-out freeze runs out by itself."""
    if breaker.frozen_until is not None and at >= breaker.frozen_until:
        after = replace(breaker, frozen_until=None)
        return _changed(breaker, after, "scale-out freeze ran out", at, ("unfreeze_scale_out",))
    if signal.catching_up or breaker.phase == "open":
        return breaker, ()
    breaker = _timers(breaker, signal, at)
    if breaker.phase == "closed":
        return _closed(breaker, signal, at)
    if breaker.phase == "warned":
        return _warned(policy, breaker, signal, at)
    return _degraded(policy, breaker, signal, at)


def _timers(breaker: Breaker, signal: RuleSignal, at: datetime) -> Breaker:
    level = signal.unit_cost
    if level == "no_data":
        return breaker
    firing = (breaker.firing_since or at) if level == "firing" else None
    clear = (breaker.clear_since or at) if level == "clear" else None
    if (firing, clear) == (breaker.firing_since, breaker.clear_since):
        return breaker
    return replace(breaker, firing_since=firing, clear_since=clear)


def _closed(breaker: Breaker, signal: RuleSignal, at: datetime) -> Found:
    quiet = breaker.quiet_until is not None and at < breaker.quiet_until
    if signal.unit_cost != "firing" or quiet:
        return breaker, ()
    after = replace(breaker, phase="warned")
    return _changed(breaker, after, "unit cost above its own baseline", at, ("notify", "check_engine_parameters"))


def _warned(policy: BreakerPolicy, breaker: Breaker, signal: RuleSignal, at: datetime) -> Found:
    held = signal.unit_cost == "firing" and breaker.firing_since is not None
    held = held and at - (breaker.firing_since or at) >= policy.degrade_after
    if (held or signal.pressure == "firing") and signal.culprits:
        after = replace(
            breaker, phase="degraded", rung=0, rung_since=at, culprits=signal.culprits, frozen_until=at + policy.frozen_for
        )
        why = "unit cost stayed high" if held else "memory pressure with long prompts"
        return _changed(breaker, after, f"{why}; caused by {', '.join(signal.culprits)}", at, _DEGRADE)
    if signal.unit_cost == "clear" and _lasted(breaker.clear_since, policy, at):
        return _changed(breaker, replace(breaker, phase="closed"), "unit cost recovered", at, ("notify",))
    return breaker, ()


_DEGRADE: tuple[CommandKind, ...] = ("publish_policy", "freeze_scale_out", "notify")


def _lasted(since: datetime | None, policy: BreakerPolicy, at: datetime) -> bool:
    return since is not None and at - since >= policy.recover_after


def _degraded(policy: BreakerPolicy, breaker: Breaker, signal: RuleSignal, at: datetime) -> Found:
    if signal.unit_cost == "clear" and _lasted(breaker.clear_since, policy, at) and not breaker.review_asked:
        after = replace(breaker, review_asked=True)
        return _changed(breaker, after, "condition cleared; a named person's review is needed to recover", at, ("notify",))
    since = breaker.rung_since or at
    if signal.unit_cost == "firing" and at - since >= policy.rung_after and breaker.rung < policy.last_rung:
        after = replace(breaker, rung=breaker.rung + 1, rung_since=at, review_asked=False)
        return _changed(breaker, after, f"still firing: ladder step {after.rung}", at, ("publish_policy", "notify"))
    return breaker, ()


def _changed(before: Breaker, after: Breaker, reason: str, at: datetime, kinds: tuple[CommandKind, ...]) -> Found:
    since = at if after.phase != before.phase else before.since
    return replace(after, since=since, reason=reason, epoch=before.epoch + 1), kinds
