"""Burn-rate alerts: which spending pages whom and when, what recovers it, and what is too little known or too little money."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.budgets import HOUR, HOURS_OF_WEEK, Budget, HourProfile
from core.burn import RULES, BurnReading, BurnVerdict, burn_window, judge_burn, read_burn
from core.money import Money, money
from core.scopes import parse_scope
from core.windows import Window

START = datetime(2026, 11, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BUDGET = Budget(parse_scope("tenant:acme"), "month", "UTC", money("72000", "USD"), "usage")
PER_MINUTE = Decimal(72000) / (30 * 24 * 60)
"""What a minute of November costs on plan."""


def readings(rate: Decimal, minutes: int, before: Decimal = Decimal(1), budget: Budget = BUDGET) -> list[BurnReading]:
    """Spending ``rate`` times the plan since ``minutes`` ago, ``before`` times until then."""
    now = START + timedelta(days=5) + minutes * MINUTE
    began = now - minutes * MINUTE

    def spent(length: timedelta) -> Money:
        window = burn_window(length, now)
        fast = min(now - began, now - window.start) / MINUTE
        slow = (now - window.start) / MINUTE - fast
        scale = budget.amount.amount / BUDGET.amount.amount
        return Money((Decimal(fast) * rate + Decimal(slow) * before) * PER_MINUTE * scale, "USD")

    return [read_burn(budget, rule, spent(rule.long), spent(rule.short), now) for rule in RULES]


def first_alert(rate: str, before: str = "1", until: int = 6000) -> tuple[int, str, str] | None:
    """After how many minutes the first alert comes, of which rule and severity."""
    for minutes in range(0, until, 5):
        verdict = judge_burn(readings(Decimal(rate), minutes, Decimal(before)), firing=False)
        if verdict.level == "firing":
            return minutes, verdict.rule, verdict.severity
    return None


@pytest.mark.parametrize(
    ("rate", "rule", "severity", "within"),
    [
        ("4.23", "fast burn", "page", 60), ("10", "fast burn", "page", 20), ("2.5", "steady burn", "page", 6 * 60),
        ("1.5", "slow burn", "warning", 3 * 24 * 60),
    ],
)  # fmt: skip
def test_how_soon_a_faster_month_alerts(rate: str, rule: str, severity: str, within: int) -> None:
    found = first_alert(rate)
    assert found is not None
    assert (found[1], found[2]) == (rule, severity)
    assert found[0] <= within


def test_a_steady_month_at_4_23_times_pages_within_the_first_hour_even_from_nothing() -> None:
    found = first_alert("4.23", before="0")
    assert found is not None
    assert (found[2], found[0] <= 60) == ("page", True)


@pytest.mark.parametrize("rate", ["0", "0.8", "1", "1.15"])
def test_a_month_on_plan_alerts_nobody(rate: str) -> None:
    assert first_alert(rate) is None


def test_a_burst_that_is_over_does_not_page() -> None:
    calm = [BurnReading(RULES[0], r.long, readings(Decimal("0.5"), 60)[0].short, r.excess) for r in readings(Decimal(5), 60)[:1]]
    assert judge_burn(calm, firing=False).level == "clear"


@pytest.mark.parametrize(
    ("short", "firing", "level"),
    [("3", False, "firing"), ("2.9", False, "clear"), ("2.9", True, "firing"), ("2.6", True, "clear")],
)
def test_what_fires_ends_only_well_below_the_line(short: str, firing: bool, level: str) -> None:
    long, brief = readings(Decimal(4), 300)[0], readings(Decimal(short), 300)[0]
    one = BurnReading(RULES[0], long.long, brief.short, long.excess)
    assert judge_burn([one], firing).level == level


def test_small_money_pages_nobody() -> None:
    small = Budget(BUDGET.scope, "month", "UTC", money("100", "USD"), "usage")
    assert judge_burn(readings(Decimal(4), 60, budget=small)[:1], firing=False).level == "clear"
    assert judge_burn(readings(Decimal(4), 60)[:1], firing=False).level == "firing"


@pytest.mark.parametrize("firing", [True, False])
def test_too_little_known_and_catching_up_hold_the_state(firing: bool) -> None:
    now = START + timedelta(days=5)
    unknown = [read_burn(BUDGET, rule, None, None, now) for rule in RULES]
    assert judge_burn(unknown, firing) == BurnVerdict("hold", "spend is unknown")
    assert judge_burn(readings(Decimal(9), 600), firing, catching_up=True).level == "hold"
    partly = [*readings(Decimal(9), 600)[:1], *unknown[1:]]
    assert judge_burn(partly, firing).level == "firing"


def test_a_forecast_above_the_amount_is_a_ticket() -> None:
    verdict = judge_burn(readings(Decimal(1), 600), firing=False, over="the month is forecast at 80,000 of 72,000")
    assert (verdict.level, verdict.rule, verdict.severity) == ("firing", "forecast", "warning")


def test_what_the_hours_expect_is_no_burn() -> None:
    """A busy hour that the profile knows is on plan, though it spends three times the mean."""
    weights = [Decimal(1)] * HOURS_OF_WEEK
    now = datetime(2026, 11, 11, 10, tzinfo=UTC)
    for hour in (8, 9, 10):
        weights[2 * 24 + hour] = Decimal(4)
    spent = {
        rule: [PER_MINUTE * Decimal((now - burn_window(n, now).start) / MINUTE) * 4 for n in (rule.long, rule.short)]
        for rule in RULES
    }
    fast = RULES[0]
    known = read_burn(BUDGET, fast, *(Money(s, "USD") for s in spent[fast]), now, HourProfile(tuple(weights)))
    plain = read_burn(BUDGET, fast, *(Money(s, "USD") for s in spent[fast]), now)
    assert judge_burn([known], firing=False).level == "clear"
    assert judge_burn([plain], firing=False).level == "firing"


@given(st.decimals(0, 20, places=2), st.decimals(0, 20, places=2), st.booleans())
def test_spending_more_never_calms(rate: Decimal, more: Decimal, firing: bool) -> None:
    low, high = (judge_burn(readings(r, 90)[:1], firing).level for r in (rate, rate + more))
    assert (low, high) != ("firing", "clear")


def test_windows_hold_whole_quarter_hours() -> None:
    now = datetime(2026, 11, 11, 10, 7, tzinfo=UTC)
    window = burn_window(timedelta(minutes=5), now)
    assert window == Window(now - 7 * MINUTE, now)
    assert burn_window(HOUR, now).start == datetime(2026, 11, 11, 9, tzinfo=UTC)
