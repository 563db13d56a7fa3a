"""Tier 2's ladder: what guards are told of a degraded breaker's culprits, step by step, the lowest service tier first.

Steps: 0 nothing yet, 1 delay, 2 also cap prompt and output tokens, 3 also reroute, 4 refuse. On rung r, P2 is on step r, P1 one
step behind and P0 two, so that P0 is capped at most. Only culprits are touched, and only on the breaker's own deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from core.breaker_values import Breaker
from core.errors import BadInput
from core.policy import Action, PolicyEntry
from core.scopes import parse_scope

TIERS_BEHIND: dict[str, int] = {"P2": 0, "P1": 1, "P0": 2}
"""How many steps each service tier is behind the breaker's rung."""
PRIORITY_DEGRADED = 200
DELAY, CAP, REROUTE, REFUSE = 1, 2, 3, 4
ACTIONS: dict[int, Action] = {DELAY: "delay", CAP: "limit", REROUTE: "reroute", REFUSE: "reject"}


@dataclass(frozen=True, slots=True)
class LadderPolicy:
    """What the steps do. ``reroute_to`` '': there is no other pool, and step 3 does what step 2 does."""

    delay_s: int = 2
    max_prompt_tokens: int = 8192
    max_output_tokens: int = 1024
    reroute_to: str = ""
    retry_after_s: int = 60

    def __post_init__(self) -> None:
        for name in ("delay_s", "max_prompt_tokens", "max_output_tokens", "retry_after_s"):
            if getattr(self, name) < 1:
                raise BadInput("must be 1 or more", field=f"ladder.{name}", value=getattr(self, name))


def ladder_entries(
    breaker: Breaker, policy: LadderPolicy, exempt: Callable[[str], Sequence[str]], at: datetime, *, paused: bool = False
) -> tuple[PolicyEntry, ...]:
    """The entries of a degraded breaker, in a stable order. Rules that are not enforced, or a pause, leave them in shadow.
    ``exempt`` gives the exemptions that meet a scope; ``paused``: the whole platform is."""
    if breaker.phase != "degraded":
        return ()
    shadow = paused or not breaker.rules_enforced or breaker.paused(at)
    found: list[PolicyEntry] = []
    for culprit in sorted(set(breaker.culprits)):
        for tier, behind in TIERS_BEHIND.items():
            for step in _steps(breaker.rung - behind, policy):
                found.append(_entry(breaker, policy, (culprit, tier, step), tuple(exempt(culprit)), shadow))
    return tuple(found)


def _steps(reached: int, policy: LadderPolicy) -> tuple[int, ...]:
    if reached >= REFUSE:
        return (REFUSE,)
    steps = tuple(range(DELAY, reached + 1))
    return steps if policy.reroute_to else tuple(step for step in steps if step != REROUTE)


def _entry(
    breaker: Breaker, policy: LadderPolicy, place: tuple[str, str, int], exempt: tuple[str, ...], shadow: bool
) -> PolicyEntry:
    culprit, tier, step = place
    within = [f"service_tier:{tier}"]
    if parse_scope(breaker.scope).kind == "deployment":
        within.append(breaker.scope)
    limits = {"max_prompt_tokens": policy.max_prompt_tokens, "max_output_tokens": policy.max_output_tokens}
    return PolicyEntry(
        id=f"breaker:{breaker.id}:{culprit}:{tier}:{step}",
        scope=culprit,
        tier=2,
        action=ACTIONS[step],
        reason=f"{breaker.scope} is degraded: {breaker.reason}",
        priority=PRIORITY_DEGRADED,
        reroute_to=policy.reroute_to if step == REROUTE else "",
        limits=limits if step == CAP else {},
        retry_after_s={DELAY: policy.delay_s, REFUSE: policy.retry_after_s}.get(step, 0),
        exempt=exempt,
        shadow=shadow,
        breaker=breaker.id,
        epoch=breaker.epoch,
        within=tuple(within),
    )
