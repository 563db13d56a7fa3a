"""What the breaker's state machine works on: its policy data, its state, the signals it takes and the commands it gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from core.budgets import TRIP_SHARE
from core.errors import BadInput
from core.money import Money

Phase = Literal["closed", "warned", "degraded", "open"]
Level = Literal["firing", "between", "clear", "no_data"]
"""A rule's condition: firing, below its threshold but not below the recovery one, clear, or not known (holds the state)."""
CommandKind = Literal["publish_policy", "notify", "page", "check_engine_parameters", "freeze_scale_out", "unfreeze_scale_out"]
SYSTEM_ACTOR = "control"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Thresholds as data. Defaults are the design's figures; times are durations, shares are 0 to 1."""

    trip_share: Decimal = TRIP_SHARE
    max_refused_share: Decimal = Decimal("0.5")
    """Blast limit: with this share of everybody else's requests refused in 10 minutes, a further trip holds and pages."""
    quiet_start: timedelta = timedelta(minutes=10)
    """After creation and after a review no rule tier acts for so long (a fresh deployment is cold, not dear)."""
    degrade_after: timedelta = timedelta(minutes=5)
    recover_after: timedelta = timedelta(minutes=10)
    rung_after: timedelta = timedelta(minutes=5)
    last_rung: int = 4
    """Ladder: 0 lower priority, 1 delay, 2 cap prompt and output tokens, 3 reroute, 4 refuse naming the limit."""
    frozen_for: timedelta = timedelta(minutes=60)
    shadow_for: timedelta = timedelta(days=7)
    max_false_trips_per_week: Decimal = Decimal(1)

    def __post_init__(self) -> None:
        for name, value in (("trip_share", self.trip_share), ("max_refused_share", self.max_refused_share)):
            if not 0 < value <= 1:
                raise BadInput("must be above 0 and at most 1", field=name, value=value)


@dataclass(frozen=True, slots=True)
class PreSigned:
    """An approver's signature, given beforehand, under which the breaker may re-close when the tripped period ends."""

    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Trip:
    """What opened the breaker."""

    period: str
    period_end: datetime
    spend: Money
    cap: Money


@dataclass(frozen=True, slots=True)
class Breaker:
    """One scope's state. ``epoch`` grows by one with every recorded change. ``enforced`` arms the cap (tier 3),
    ``rules_enforced`` the rule tiers; false means shadow: it decides and records, and nothing is refused."""

    id: int
    scope: str
    created_at: datetime
    since: datetime
    phase: Phase = "closed"
    epoch: int = 0
    enforced: bool = False
    rules_enforced: bool = False
    reason: str = ""
    paused_until: datetime | None = None
    trip: Trip | None = None
    presigned: PreSigned | None = None
    held: bool = False
    """The blast limit holds back a trip."""
    over_unmetered: bool = False
    """Over the threshold by true-up, idle or late rows alone, which only alert."""
    firing_since: datetime | None = None
    clear_since: datetime | None = None
    quiet_until: datetime | None = None
    rung: int = 0
    rung_since: datetime | None = None
    review_asked: bool = False
    frozen_until: datetime | None = None
    culprits: tuple[str, ...] = ()

    def paused(self, at: datetime) -> bool:
        return self.paused_until is not None and at < self.paused_until

    def refuses(self, at: datetime) -> bool:
        """Whether guards are told to refuse (open, armed, not paused)."""
        return self.phase == "open" and self.enforced and not self.paused(at)


@dataclass(frozen=True, slots=True)
class CapReading:
    """One capped budget of the scope now. ``spend`` None = unknown with ``reason`` (NO_DATA: holds the state)."""

    period: str
    period_end: datetime
    spend: Money | None
    cap: Money
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CapSignal:
    """All capped budgets of the scope. ``metered``: usage newly metered in windows not yet closed exists. ``refused_share``: of
    all other scopes' requests of the last 10 minutes the share that was refused; None when there were too few to tell."""

    readings: tuple[CapReading, ...]
    metered: bool
    catching_up: bool = False
    refused_share: Decimal | None = None


@dataclass(frozen=True, slots=True)
class RuleSignal:
    """``unit_cost``: tier 1's condition. ``pressure``: tier 2's own (KV use with requests waiting, more long prompts).
    ``culprits``: tenants whose own extra weight explains at least half of the excess; without any nobody is degraded."""

    unit_cost: Level
    pressure: Level = "no_data"
    culprits: tuple[str, ...] = ()
    catching_up: bool = False


@dataclass(frozen=True, slots=True)
class Backtest:
    """What a rule would have done: over how long, how often it fired falsely a week."""

    span: timedelta
    false_trips_per_week: Decimal
    summary: str


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a reset grants: a new cap for good, or +extra until a time. ``cap_after`` is the effective cap it leads to."""

    cap_after: Money
    new_cap: Money | None = None
    extra: Money | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """A person re-closes an open breaker. ``spend`` is the tripped period's spend now (None: unknown)."""

    actor: str
    reason: str
    allowance: Allowance | None
    spend: Money | None


@dataclass(frozen=True, slots=True)
class Approve:
    """A named person's review: re-closes a degraded breaker, or signs an open one's re-close at the end of its period."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Enforce:
    """Arm the cap (``read_shadow_report`` stands in for 7 days in shadow) or, with a back-test, the rule tiers."""

    actor: str
    reason: str
    what: Literal["cap", "rules"] = "cap"
    has_cap: bool = False
    read_shadow_report: bool = False
    backtest: Backtest | None = None


@dataclass(frozen=True, slots=True)
class Shadow:
    """Disarm: it goes on deciding, and acts on nothing."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Act on nothing until ``until``; None ends a running pause."""

    actor: str
    reason: str
    until: datetime | None


Signal = CapSignal | RuleSignal | Reset | Approve | Enforce | Shadow | Pause


@dataclass(frozen=True, slots=True)
class Command:
    """An effect of one change; ``key`` is its idempotency key (breaker id, epoch, kind)."""

    key: str
    kind: CommandKind
    shadow: bool
    payload: dict[str, str | int | bool | None] = field(default_factory=dict)
