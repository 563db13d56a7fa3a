"""Burn-rate alerts on budgets: a rule fires when a long and a short window both spend faster than the plan by its factor.

The long window says that it matters, the short one that it still goes on (SRE workbook, "alerting on SLOs", with
factors of our own: a day's peak alone is twice a plan). Pure: readings in, verdict out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from core.budgets import HOUR, Budget, Figure, HourProfile, burn_rate
from core.incident import Severity
from core.money import Money, plain
from core.windows import QUARTER_HOUR, Window, floor_time

Level = Literal["firing", "clear", "hold"]


@dataclass(frozen=True, slots=True)
class BurnRule:
    """``factor``: multiples of what the plan expects of the window."""

    name: str
    factor: Decimal
    long: timedelta
    short: timedelta
    severity: Severity


RULES = (
    BurnRule("fast burn", Decimal(3), HOUR, timedelta(minutes=5), "page"),
    BurnRule("steady burn", Decimal(2), 6 * HOUR, timedelta(minutes=30), "page"),
    BurnRule("slow burn", Decimal("1.2"), timedelta(days=3), 6 * HOUR, "warning"),
)
RECOVERS_AT = Decimal("0.9")
"""A firing rule is over once its short window falls below this part of the factor: at the line itself it would flap."""
LEAST_EXCESS = Decimal(1)
"""A long window less than this much money above its plan pages nobody, in the budget's currency."""


@dataclass(frozen=True, slots=True)
class BurnReading:
    """One rule's windows; ``excess`` is the long window's spend above plan, None where unknown."""

    rule: BurnRule
    long: Figure
    short: Figure
    excess: Money | None


@dataclass(frozen=True, slots=True)
class BurnVerdict:
    """``hold``: too little is known to say that it burns or that it does not. ``rule``: the gravest that fires."""

    level: Level
    reason: str
    rule: str = ""
    severity: Severity = "warning"
    at_risk: Money | None = None


def burn_window(length: timedelta, now: datetime) -> Window:
    """The quarter hours that hold the last ``length``: spend is known by whole quarter hours and the one that runs, so that five
    minutes are the last 5 to 20."""
    return Window(floor_time(now - length, QUARTER_HOUR), now)


def lengths(rules: Sequence[BurnRule] = RULES) -> tuple[timedelta, ...]:
    """Every window length the rules ask for, shortest first."""
    return tuple(sorted({length for rule in rules for length in (rule.long, rule.short)}))


def read_burn(
    budget: Budget, rule: BurnRule, long: Money | None, short: Money | None, now: datetime, profile: HourProfile | None = None
) -> BurnReading:
    """``long`` and ``short``: spend of the rule's windows (``burn_window``); None: unknown."""
    rates = [
        burn_rate(budget, spent, burn_window(length, now), profile)
        for spent, length in ((long, rule.long), (short, rule.short))
    ]  # fmt: skip
    excess = None
    if long is not None and rates[0].value:
        excess = long - long.times(1 / rates[0].value)
    return BurnReading(rule, rates[0], rates[1], excess)


def judge_burn(
    readings: Sequence[BurnReading], firing: bool, catching_up: bool = False, over: str = "", least: Decimal = LEAST_EXCESS
) -> BurnVerdict:
    """What the readings say together. ``firing``: an episode is open, which ends only when every rule is clear. ``over``: why the
    period is forecast to cost more than its amount, a ticket by itself. While catching up nothing opens and nothing ends."""
    if catching_up:
        return BurnVerdict("hold", "usage is catching up")
    for reading in readings:
        if _fires(reading, firing, least):
            return BurnVerdict("firing", _told(reading), reading.rule.name, reading.rule.severity, reading.excess)
    if over:
        return BurnVerdict("firing", over, "forecast", "warning")
    unknown = [figure.reason for r in readings for figure in (r.long, r.short) if figure.value is None]
    if unknown:
        return BurnVerdict("hold", unknown[0])
    return BurnVerdict("clear", "spending is back to what the plan expects")


def _fires(reading: BurnReading, firing: bool, least: Decimal) -> bool:
    long, short, factor = reading.long.value, reading.short.value, reading.rule.factor
    if long is None or short is None or reading.excess is None or reading.excess.amount < least:
        return False
    return long >= factor and short >= (factor * RECOVERS_AT if firing else factor)


def _told(reading: BurnReading) -> str:
    long, short = ("" if f.value is None else plain(f.value.quantize(Decimal("0.01"))) for f in (reading.long, reading.short))
    rule = reading.rule
    return (
        f"{long} times the plan over the last {_span(rule.long)} and {short} times over {_span(rule.short)}, "
        f"at {plain(rule.factor)} it alerts"
    )


def _span(length: timedelta) -> str:
    minutes = length // timedelta(minutes=1)
    if minutes % 1440 == 0:
        return f"{minutes // 1440} d"
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"
