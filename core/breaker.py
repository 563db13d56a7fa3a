"""The circuit breaker as a pure state machine: closed, warned (tier 1), degraded (tier 2), open (tier 3).

``step`` never reads a clock and never acts: it returns the next state and the commands that carry it out. A signal that changes
nothing returns the same breaker and no command, so that replaying signals acts once. NO_DATA holds whatever the state is.

An armed breaker leaves *open* only by a person: a reset with reason and allowance, or an approver's signature given before the
period's end. One in shadow refused nothing, so it re-arms itself when the tripped period is over (else it would fire once only).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, get_args

from core.breaker_rules import step_rules
from core.breaker_values import (
    SYSTEM_ACTOR,
    Approve,
    Breaker,
    BreakerPolicy,
    CapReading,
    CapSignal,
    Command,
    CommandKind,
    Enforce,
    Pause,
    Phase,
    PreSigned,
    Reset,
    RuleSignal,
    Shadow,
    Signal,
    Trip,
)
from core.budgets import share
from core.errors import BadInput, Conflict, Refused
from core.money import plain
from core.windows import require_utc

PHASES: tuple[str, ...] = get_args(Phase)
Step = tuple[Breaker, tuple[Command, ...]]


def step(policy: BreakerPolicy, breaker: Breaker, signal: Signal, at: datetime) -> Step:
    """Fold one signal. Raises Refused, Conflict or BadInput on a person's request, never for a measurement."""
    require_utc(at)
    if isinstance(signal, CapSignal):
        return _cap(policy, breaker, signal, at)
    if isinstance(signal, RuleSignal):
        after, kinds = step_rules(policy, breaker, signal, at)
        return _commands(breaker, after, kinds, shadow=not breaker.rules_enforced or breaker.paused(at))
    _named(signal.actor, signal.reason)
    if isinstance(signal, Reset):
        return _reset(policy, breaker, signal, at)
    if isinstance(signal, Approve):
        return _approve(policy, breaker, signal, at)
    if isinstance(signal, Enforce):
        return _enforce(policy, breaker, signal, at)
    if isinstance(signal, Shadow):
        return _shadow(breaker, signal, at)
    return _pause(breaker, signal, at)


def _named(actor: str, reason: str) -> None:
    if not actor.strip() or actor == SYSTEM_ACTOR:
        raise Refused("a named person must sign this", hint="use a token issued to a person")
    if not reason.strip():
        raise BadInput("must not be empty", field="reason", value=reason, hint="say why; it goes into the audit trail")


def _cap(policy: BreakerPolicy, breaker: Breaker, signal: CapSignal, at: datetime) -> Step:
    over = _over(policy, signal)
    if breaker.phase == "open":
        return _open_holds(breaker, signal, over, at)
    if over is None:
        known = all(reading.spend is not None for reading in signal.readings)
        if known and (breaker.held or breaker.over_unmetered):
            calm = replace(breaker, held=False, over_unmetered=False)
            return _change(breaker, calm, "spend is below the threshold", at, ())
        return breaker, ()
    if not signal.metered:
        return _over_unmetered(breaker, over, at)
    if breaker.enforced and not breaker.paused(at) and _blast(policy, signal):
        return _hold(breaker, over, signal, at)
    return _trip(breaker, over, at)


def _over(policy: BreakerPolicy, signal: CapSignal) -> CapReading | None:
    """The reading furthest over the threshold, or None."""
    shares = [(share(r.spend, r.cap).value, r) for r in signal.readings]
    found = [(value, n) for n, (value, _) in enumerate(shares) if value is not None and value >= policy.trip_share]
    return signal.readings[max(found, key=lambda f: (f[0], -f[1]))[1]] if found else None


def _blast(policy: BreakerPolicy, signal: CapSignal) -> bool:
    return signal.refused_share is not None and signal.refused_share >= policy.max_refused_share


def _trip(breaker: Breaker, over: CapReading, at: datetime) -> Step:
    assert over.spend is not None
    after = replace(
        breaker,
        phase="open",
        held=False,
        over_unmetered=False,
        trip=Trip(over.period, over.period_end, over.spend, over.cap),
        presigned=None,
        review_asked=False,
        rung=0,
        rung_since=None,
        culprits=(),
    )
    told: CommandKind = "page" if after.refuses(at) else "notify"
    return _change(breaker, after, f"{_told(over)} reached the threshold", at, ("publish_policy", told))


def _told(reading: CapReading) -> str:
    spend = "unknown" if reading.spend is None else plain(reading.spend.amount)
    return f"spend {spend} of cap {plain(reading.cap.amount)} {reading.cap.currency} this {reading.period}"


def _over_unmetered(breaker: Breaker, over: CapReading, at: datetime) -> Step:
    if breaker.over_unmetered:
        return breaker, ()
    reason = f"{_told(over)} reached the threshold without newly metered usage (true-up, idle or late rows): alert only"
    return _change(breaker, replace(breaker, over_unmetered=True), reason, at, ("notify",))


def _hold(breaker: Breaker, over: CapReading, signal: CapSignal, at: datetime) -> Step:
    if breaker.held:
        return breaker, ()
    assert signal.refused_share is not None
    reason = f"{_told(over)} reached the threshold; held, for {signal.refused_share:.0%} of other requests are refused already"
    return _change(breaker, replace(breaker, held=True), reason, at, ("page",))


def _open_holds(breaker: Breaker, signal: CapSignal, over: CapReading | None, at: datetime) -> Step:
    """It re-closes here only when its period is over, spend is known to be below, and a person signed (or shadow)."""
    ended = breaker.trip is not None and at >= breaker.trip.period_end
    known = bool(signal.readings) and all(reading.spend is not None for reading in signal.readings)
    if not ended or over is not None or not known or signal.catching_up:
        return breaker, ()
    if breaker.presigned is not None:
        signed = breaker.presigned
        reason = f"period ended; re-close signed beforehand by {signed.actor}: {signed.reason}"
        return _change(breaker, _closed(breaker), reason, at, ("publish_policy", "notify"))
    if not breaker.enforced:
        return _change(breaker, _closed(breaker), "period ended; shadow re-arms", at, ("publish_policy",))
    return breaker, ()


def _closed(breaker: Breaker) -> Breaker:
    return replace(breaker, phase="closed", trip=None, presigned=None, held=False, firing_since=None, clear_since=None)


def _reset(policy: BreakerPolicy, breaker: Breaker, signal: Reset, at: datetime) -> Step:
    if breaker.phase != "open":
        raise Conflict(f"breaker {breaker.id} is {breaker.phase}, not open", hint="only an open breaker is reset")
    granted = signal.allowance
    if granted is None or (granted.new_cap is None) == (granted.extra is None):
        raise Refused("a reset needs an allowance", hint="give a new cap, or an extra amount and until when")
    if granted.extra is not None and (granted.until is None or granted.until <= at):
        raise BadInput("must be in the future", field="until", value=granted.until)
    used = share(signal.spend, granted.cap_after).value
    if used is not None and used >= policy.trip_share and signal.spend is not None:
        need = plain(signal.spend.amount / policy.trip_share)
        raise Refused(
            f"spend {plain(signal.spend.amount)} is {used:.1%} of the cap {plain(granted.cap_after.amount)} this would give: "
            "it would trip again at once",
            hint=f"allow a cap above {need} {granted.cap_after.currency}",
        )
    after = replace(_closed(breaker), quiet_until=at + policy.quiet_start)
    return _change(breaker, after, signal.reason, at, ("publish_policy", "notify"))


def _approve(policy: BreakerPolicy, breaker: Breaker, signal: Approve, at: datetime) -> Step:
    if breaker.phase == "degraded":
        frozen = breaker.frozen_until is not None
        after = replace(
            breaker, phase="closed", rung=0, rung_since=None, review_asked=False, firing_since=None, clear_since=None,
            culprits=(), frozen_until=None, quiet_until=at + policy.quiet_start,
        )  # fmt: skip
        kinds: tuple[CommandKind, ...] = ("publish_policy", "notify", *(("unfreeze_scale_out",) if frozen else ()))
        return _change(breaker, after, signal.reason, at, kinds)
    if breaker.phase == "open":
        if breaker.trip is not None and at >= breaker.trip.period_end:
            raise Conflict("the tripped period is over: it can no longer be signed beforehand", hint="reset with an allowance")
        after = replace(breaker, presigned=PreSigned(signal.actor, signal.reason, at))
        return _change(breaker, after, f"re-close at the period's end signed: {signal.reason}", at, ("notify",))
    raise Conflict(f"breaker {breaker.id} is {breaker.phase}: there is nothing to review")


def _enforce(policy: BreakerPolicy, breaker: Breaker, signal: Enforce, at: datetime) -> Step:
    if signal.what == "rules":
        return _enforce_rules(policy, breaker, signal, at)
    if not signal.has_cap:
        raise Refused("no budget of this scope has a cap: tier 3 guards nothing", hint="set a budget with a cap first")
    if breaker.enforced:
        raise Conflict(f"breaker {breaker.id} is enforced already")
    if at - breaker.created_at < policy.shadow_for and not signal.read_shadow_report:
        days = policy.shadow_for.days
        raise Refused(
            f"the breaker has been in shadow for less than {days} days",
            hint="read what it would have done and confirm that you did",
        )
    after = replace(breaker, enforced=True)
    if breaker.phase == "open":
        # What tripped in shadow may be long past: the next measurement decides afresh, within a second.
        after = replace(_closed(after), enforced=True)
    return _change(breaker, after, signal.reason, at, ("publish_policy", "notify"))


def _enforce_rules(policy: BreakerPolicy, breaker: Breaker, signal: Enforce, at: datetime) -> Step:
    test = signal.backtest
    if breaker.rules_enforced:
        raise Conflict(f"the rules of breaker {breaker.id} are enforced already")
    if test is None or test.span < policy.shadow_for:
        raise Refused(f"rules are enforced only after a back-test over at least {policy.shadow_for.days} days")
    if test.false_trips_per_week > policy.max_false_trips_per_week:
        raise Refused(f"the rule is too noisy: {test.false_trips_per_week} false trips a week")
    after = replace(breaker, rules_enforced=True)
    return _change(breaker, after, f"{signal.reason} ({test.summary})", at, ("publish_policy", "notify"))


def _shadow(breaker: Breaker, signal: Shadow, at: datetime) -> Step:
    if not breaker.enforced and not breaker.rules_enforced:
        raise Conflict(f"breaker {breaker.id} is in shadow already")
    after = replace(breaker, enforced=False, rules_enforced=False, held=False)
    return _change(breaker, after, signal.reason, at, ("publish_policy", "notify"))


def _pause(breaker: Breaker, signal: Pause, at: datetime) -> Step:
    if signal.until is not None and require_utc(signal.until, "until") <= at:
        raise BadInput("must be in the future", field="until", value=signal.until.isoformat())
    if signal.until is None and not breaker.paused(at):
        raise Conflict(f"breaker {breaker.id} is not paused")
    return _change(breaker, replace(breaker, paused_until=signal.until), signal.reason, at, ("publish_policy", "notify"))


def _change(before: Breaker, after: Breaker, reason: str, at: datetime, kinds: tuple[CommandKind, ...]) -> Step:
    since = at if after.phase != before.phase else before.since
    after = replace(after, since=since, reason=reason, epoch=before.epoch + 1)
    return _commands(before, after, kinds, shadow=not (before.enforced or after.enforced) or after.paused(at))


def _commands(before: Breaker, after: Breaker, kinds: tuple[CommandKind, ...], *, shadow: bool) -> Step:
    payload: dict[str, Any] = {
        "breaker": after.id, "scope": after.scope, "epoch": after.epoch, "from_phase": before.phase, "to_phase": after.phase,
        "reason": after.reason, "shadow": shadow,
    }  # fmt: skip
    return after, tuple(Command(f"breaker:{after.id}:{after.epoch}:{kind}", kind, shadow, payload) for kind in kinds)
