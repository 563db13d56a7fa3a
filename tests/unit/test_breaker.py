"""The breaker, tier by tier, as tables: what each signal does to each state, and what each person may do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from core.breaker import step
from core.breaker_values import (
    Allowance,
    Approve,
    Backtest,
    Breaker,
    BreakerPolicy,
    CapReading,
    CapSignal,
    Enforce,
    Pause,
    Reset,
    RuleSignal,
    Shadow,
    Signal,
)
from core.errors import BadInput, Conflict, Refused, TokenfuseError
from core.money import Money, money

POLICY = BreakerPolicy()
T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
MIN = timedelta(minutes=1)
END = datetime(2026, 12, 1, tzinfo=UTC)
NEW = Breaker(7, "tenant:acme/red", T0, T0)
ARMED = replace(NEW, enforced=True)


def usd(text: str) -> Money:
    return money(text, "USD")


def cap(spend: str | None, *, of: str = "100", metered: bool = True, end: datetime = END, **more: Any) -> CapSignal:
    reading = CapReading("day", end, None if spend is None else usd(spend), usd(of), "" if spend else "rate unknown")
    return CapSignal((reading,), metered, **more)


def run(breaker: Breaker, *signals: tuple[timedelta, Signal]) -> Breaker:
    for after, signal in signals:
        breaker, _ = step(POLICY, breaker, signal, T0 + after)
    return breaker


OPEN = run(ARMED, (MIN, cap("95")))
SHADOW_OPEN = run(NEW, (MIN, cap("95")))


@pytest.mark.parametrize(
    ("signal", "phase", "commands"),
    [
        (cap("94.999999999999"), "closed", []),
        (cap("95"), "open", ["publish_policy", "page"]),
        (cap("140"), "open", ["publish_policy", "page"]),
        (cap(None), "closed", []),
        (cap("95", metered=False), "closed", ["notify"]),
        (cap("95", refused_share=Decimal("0.5")), "closed", ["page"]),
        (cap("95", refused_share=Decimal("0.49")), "open", ["publish_policy", "page"]),
        (cap("95", catching_up=True), "open", ["publish_policy", "page"]),
        (CapSignal((), True), "closed", []),
    ],
    ids=["below 95 %", "at 95 %", "above", "unknown spend", "true-up only", "blast limit", "under the blast limit",
         "catching up", "no capped budget"],
)  # fmt: skip
def test_tier_3_trips_at_95_percent_of_the_cap(signal: CapSignal, phase: str, commands: list[str]) -> None:
    after, given = step(POLICY, ARMED, signal, T0)
    assert after.phase == phase
    assert [command.kind for command in given] == commands


def test_in_shadow_it_decides_but_does_not_act() -> None:
    after, commands = step(POLICY, NEW, cap("95"), T0)
    assert (after.phase, after.refuses(T0)) == ("open", False)
    assert [(c.kind, c.shadow) for c in commands] == [("publish_policy", True), ("notify", True)]


def test_the_worst_of_several_budgets_trips_and_an_unknown_one_hides_nothing() -> None:
    readings = (
        CapReading("month", END, None, usd("900"), "rate unknown"),
        CapReading("week", END, usd("96"), usd("100")),
        CapReading("day", END, usd("19.8"), usd("20")),
    )
    after, _ = step(POLICY, ARMED, CapSignal(readings, True), T0)
    assert after.trip is not None
    assert after.trip.period == "day"


def test_every_effect_is_keyed_by_breaker_and_epoch() -> None:
    after, commands = step(POLICY, ARMED, cap("95"), T0)
    assert (after.epoch, [c.key for c in commands]) == (1, ["breaker:7:1:publish_policy", "breaker:7:1:page"])


@pytest.mark.parametrize("signal", [cap("95"), cap("95", metered=False), cap("95", refused_share=Decimal(1))])
def test_the_same_signal_again_does_nothing(signal: CapSignal) -> None:
    once, first = step(POLICY, ARMED, signal, T0)
    again, second = step(POLICY, once, signal, T0 + MIN)
    assert first
    assert (again, second) == (once, ())


def test_a_held_trip_goes_on_when_the_others_flow_again() -> None:
    held = run(ARMED, (MIN, cap("95", refused_share=Decimal(1))))
    assert held.held
    assert run(held, (2 * MIN, cap("96", refused_share=Decimal(0)))).phase == "open"
    assert run(held, (2 * MIN, cap("90"))) == replace(held, held=False, epoch=2, reason="spend is below the threshold")


def test_a_true_up_alerts_and_the_next_metered_request_trips() -> None:
    alerted = run(ARMED, (MIN, cap("99", metered=False)))
    assert alerted.over_unmetered
    assert run(alerted, (2 * MIN, cap("99"))).phase == "open"


@pytest.mark.parametrize(
    ("breaker", "signal", "after", "phase"),
    [
        (OPEN, cap("1"), 2 * MIN, "open"),
        (OPEN, cap("0", end=END + timedelta(days=1)), timedelta(hours=13), "open"),
        (OPEN, cap(None), timedelta(hours=13), "open"),
        (SHADOW_OPEN, cap("1"), 2 * MIN, "open"),
        (SHADOW_OPEN, cap("0", end=END + timedelta(days=1)), timedelta(hours=13), "closed"),
        (SHADOW_OPEN, cap("0", end=END + timedelta(days=1), catching_up=True), timedelta(hours=13), "open"),
        (SHADOW_OPEN, cap(None), timedelta(hours=13), "open"),
        (SHADOW_OPEN, cap("99", end=END + timedelta(days=1)), timedelta(hours=13), "open"),
        (SHADOW_OPEN, CapSignal((), True), timedelta(hours=13), "open"),
    ],
    ids=["spend falls", "period ends", "no data", "shadow: spend falls", "shadow: period ends", "shadow: catching up",
         "shadow: no data", "shadow: over again", "shadow: budget gone"],
)  # fmt: skip
def test_open_survives_everything_but_a_person(breaker: Breaker, signal: CapSignal, after: timedelta, phase: str) -> None:
    assert run(breaker, (after, signal)).phase == phase


def test_a_close_signed_beforehand_acts_at_the_periods_end_and_not_before() -> None:
    signed = run(OPEN, (2 * MIN, Approve("ann", "month-end run is over by then")))
    tomorrow = cap("0", end=END + timedelta(days=1))
    assert run(signed, (3 * MIN, cap("1"))).phase == "open"
    assert run(signed, (timedelta(hours=13), replace(tomorrow, catching_up=True))).phase == "open"
    closed, commands = step(POLICY, signed, tomorrow, END)
    assert (closed.phase, closed.presigned, [c.kind for c in commands]) == ("closed", None, ["publish_policy", "notify"])
    assert "signed beforehand by ann" in closed.reason


def test_signing_after_the_periods_end_is_too_late() -> None:
    with pytest.raises(Conflict, match="beforehand"):
        step(POLICY, OPEN, Approve("ann", "late"), END)


MORE = Allowance(usd("150"), new_cap=usd("150"))
EXTRA = Allowance(usd("120"), extra=usd("20"), until=END)


@pytest.mark.parametrize("allowance", [MORE, EXTRA], ids=["new cap", "+X until T"])
@pytest.mark.parametrize("spend", ["95", None], ids=["known spend", "unknown spend"])
def test_a_person_re_closes_with_reason_and_allowance(allowance: Allowance, spend: str | None) -> None:
    after, commands = step(POLICY, OPEN, Reset("ann", "batch was legitimate", allowance, spend and usd(spend)), T0 + 2 * MIN)  # type: ignore[arg-type]
    assert (after.phase, after.enforced, after.trip, after.reason) == ("closed", True, None, "batch was legitimate")
    assert [c.kind for c in commands] == ["publish_policy", "notify"]


def reset(**change: Any) -> Reset:
    return Reset(**{"actor": "ann", "reason": "ok", "allowance": MORE, "spend": usd("95"), **change})


GOOD_TEST = Backtest(timedelta(days=7), Decimal("0.5"), "fired 2 times")


@pytest.mark.parametrize(
    ("breaker", "signal", "error", "says"),
    [
        (OPEN, reset(allowance=None), Refused, "needs an allowance"),
        (OPEN, reset(allowance=Allowance(usd("150"))), Refused, "needs an allowance"),
        (OPEN, reset(allowance=Allowance(usd("99"), new_cap=usd("99"))), Refused, "trip again at once"),
        (OPEN, reset(allowance=Allowance(usd("120"), extra=usd("20"))), BadInput, "future"),
        (OPEN, reset(allowance=Allowance(usd("120"), extra=usd("20"), until=T0)), BadInput, "future"),
        (OPEN, reset(reason=" "), BadInput, "reason"),
        (OPEN, reset(actor=""), Refused, "named person"),
        (OPEN, reset(actor="control"), Refused, "named person"),
        (ARMED, reset(), Conflict, "not open"),
        (ARMED, Approve("ann", "?"), Conflict, "nothing to review"),
        (NEW, Enforce("ann", "go"), Refused, "no budget of this scope has a cap"),
        (NEW, Enforce("ann", "go", has_cap=True), Refused, "less than 7 days"),
        (ARMED, Enforce("ann", "go", has_cap=True), Conflict, "enforced already"),
        (NEW, Enforce("ann", "go", "rules"), Refused, "back-test"),
        (NEW, Enforce("ann", "go", "rules", backtest=replace(GOOD_TEST, span=timedelta(days=6))), Refused, "back-test"),
        (NEW, Enforce("ann", "go", "rules", backtest=replace(GOOD_TEST, false_trips_per_week=Decimal(2))), Refused, "noisy"),
        (NEW, Shadow("ann", "x"), Conflict, "in shadow already"),
        (NEW, Pause("ann", "x", T0), BadInput, "future"),
        (NEW, Pause("ann", "x", None), Conflict, "not paused"),
    ],
)
def test_what_a_person_may_not_do(breaker: Breaker, signal: Signal, error: type[TokenfuseError], says: str) -> None:
    with pytest.raises(error, match=says):
        step(POLICY, breaker, signal, T0 + 2 * MIN)


def test_enforcing_takes_seven_days_in_shadow_or_a_read_report() -> None:
    later = T0 + timedelta(days=7)
    assert step(POLICY, NEW, Enforce("ann", "go", has_cap=True), later)[0].enforced
    assert step(POLICY, NEW, Enforce("ann", "go", has_cap=True, read_shadow_report=True), T0 + MIN)[0].enforced
    assert step(POLICY, NEW, Enforce("ann", "go", "rules", backtest=GOOD_TEST), T0 + MIN)[0].rules_enforced


def test_enforcing_a_breaker_that_opened_in_shadow_measures_afresh() -> None:
    armed = run(SHADOW_OPEN, (2 * MIN, Enforce("ann", "go", has_cap=True, read_shadow_report=True)))
    assert (armed.phase, armed.enforced) == ("closed", True)
    assert run(armed, (3 * MIN, cap("50"))).phase == "closed"
    assert run(armed, (3 * MIN, cap("96"))).refuses(T0 + 3 * MIN)


def test_a_pause_acts_on_nothing_until_it_ends() -> None:
    paused = run(OPEN, (2 * MIN, Pause("ann", "incident", T0 + 60 * MIN)))
    assert [paused.refuses(T0 + n * MIN) for n in (3, 59, 60)] == [False, False, True]
    assert run(paused, (3 * MIN, Pause("ann", "over", None))).refuses(T0 + 3 * MIN)


def test_shadow_disarms_and_stays_open_on_paper() -> None:
    after = run(OPEN, (2 * MIN, Shadow("ann", "false alarm")))
    assert (after.phase, after.refuses(T0 + 2 * MIN)) == ("open", False)


FIRING, CLEAR = RuleSignal("firing", culprits=("tenant:acme/red",)), RuleSignal("clear")
BETWEEN, NO_DATA = RuleSignal("between"), RuleSignal("no_data")
ORPHAN = RuleSignal("firing")


@pytest.mark.parametrize(
    ("story", "phase"),
    [
        ([(0, FIRING)], "warned"),
        ([(0, NO_DATA)], "closed"),
        ([(0, BETWEEN)], "closed"),
        ([(0, FIRING), (4, FIRING)], "warned"),
        ([(0, FIRING), (5, FIRING)], "degraded"),
        ([(0, FIRING), (5, ORPHAN)], "warned"),
        ([(0, FIRING), (2, BETWEEN), (5, FIRING)], "warned"),
        ([(0, FIRING), (2, NO_DATA), (5, FIRING)], "degraded"),
        ([(0, FIRING), (1, replace(BETWEEN, pressure="firing", culprits=("tenant:acme/red",)))], "degraded"),
        ([(0, FIRING), (1, CLEAR), (10, CLEAR)], "warned"),
        ([(0, FIRING), (1, CLEAR), (11, CLEAR)], "closed"),
        ([(0, FIRING), (1, CLEAR), (6, BETWEEN), (11, CLEAR)], "warned"),
        ([(0, FIRING), (1, CLEAR), (11, replace(CLEAR, catching_up=True))], "warned"),
        ([(0, FIRING), (5, FIRING), (6, CLEAR), (60, CLEAR), (600, CLEAR)], "degraded"),
        ([(0, FIRING), (5, FIRING), (6, CLEAR), (16, CLEAR), (17, Approve("ann", "fixed"))], "closed"),
        ([(0, FIRING), (5, FIRING), (6, cap("96"))], "open"),
    ],
    ids=["fires", "no data", "between", "4 minutes", "5 minutes", "nobody caused it", "interrupted", "gap in data", "pressure",
         "clear 9 min", "clear 10 min", "hysteresis", "catching up", "degraded never recovers alone", "review",
         "cap from degraded"],
)  # fmt: skip
def test_tiers_1_and_2(story: list[tuple[int, Signal]], phase: str) -> None:
    start = T0 + timedelta(hours=1)
    breaker = replace(ARMED, rules_enforced=True, quiet_until=T0 + 10 * MIN)
    for minute, signal in story:
        breaker, _ = step(POLICY, breaker, signal, start + minute * MIN)
    assert breaker.phase == phase


def test_a_quiet_start_warns_nobody() -> None:
    fresh = replace(NEW, quiet_until=T0 + 10 * MIN)
    assert run(fresh, (9 * MIN, FIRING)).phase == "closed"
    assert run(fresh, (9 * MIN, FIRING), (10 * MIN, FIRING)).phase == "warned"


def test_degrading_freezes_scale_out_for_an_hour_and_climbs_the_ladder() -> None:
    degraded = run(NEW, (timedelta(0), FIRING), (5 * MIN, FIRING))
    assert (degraded.rung, degraded.culprits, degraded.frozen_until) == (0, ("tenant:acme/red",), T0 + 65 * MIN)
    assert [run(degraded, (n * MIN, FIRING)).rung for n in (9, 10)] == [0, 1]
    top = run(degraded, *((5 * n * MIN, FIRING) for n in range(2, 12)))
    assert top.rung == POLICY.last_rung
    thawed, commands = step(POLICY, degraded, NO_DATA, T0 + 65 * MIN)
    assert (thawed.frozen_until, [c.kind for c in commands]) == (None, ["unfreeze_scale_out"])


def test_a_cleared_degradation_asks_for_review_once() -> None:
    degraded = run(NEW, (timedelta(0), FIRING), (5 * MIN, FIRING), (6 * MIN, CLEAR))
    asked, commands = step(POLICY, degraded, CLEAR, T0 + 16 * MIN)
    assert [c.kind for c in commands] == ["notify"]
    assert step(POLICY, asked, CLEAR, T0 + 17 * MIN) == (asked, ())


@pytest.mark.parametrize("share", ["0", "1.01", "-1"])
def test_policy_shares_are_checked(share: str) -> None:
    with pytest.raises(BadInput, match="trip_share"):
        BreakerPolicy(trip_share=Decimal(share))
