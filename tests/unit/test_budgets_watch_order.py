"""Which budgets are looked at on every commit: new ones and those near their cap; all of them where there are few."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from control.budget_watch import WatchReport
from control.watch_order import COLD_EVERY, COLD_SLICE, HOT_SCOPES, WatchOrder

NOW = datetime(2026, 11, 30, tzinfo=UTC)
NAMES = [f"tenant:t{n:02}" for n in range(50)]


def report(shares: dict[str, str], scopes: int = 50) -> WatchReport:
    return WatchReport({name: Decimal(value) for name, value in shares.items()}, scopes)


def test_a_few_budgets_are_always_looked_at() -> None:
    order, few = WatchOrder(), NAMES[:HOT_SCOPES]
    order.note(report(dict.fromkeys(few, "0"), len(few)), NOW)
    assert (sorted(order.hot(few)), order.cold(few, NOW + COLD_EVERY)) == (few, [])


def test_after_a_restart_all_are_due() -> None:
    order, seen = WatchOrder(), set[str]()
    for _ in range(3):
        looked_at = {*order.hot(NAMES), *order.cold(NAMES, NOW)}
        assert len(looked_at) <= HOT_SCOPES + COLD_SLICE
        order.note(report(dict.fromkeys(looked_at, "0")), NOW)
        seen |= looked_at
    assert seen == set(NAMES)


def test_of_many_the_nearest_come_first_and_all_from_half_the_cap_on_are_hot() -> None:
    order = WatchOrder()
    order.note(report({name: ("0.5" if n >= 20 else "0.1") for n, name in enumerate(NAMES)} | {NAMES[7]: "0.94"}), NOW)
    hot = order.hot(NAMES)
    assert (hot[0], len(hot)) == (NAMES[7], 31)
    assert set(order.cold(NAMES, NOW + COLD_EVERY)) <= set(NAMES) - set(hot)
    assert order.hot([*NAMES, "tenant:new"])[0] == "tenant:new"


def test_the_others_are_due_every_two_seconds_and_when_the_clock_steps_back() -> None:
    order = WatchOrder()
    order.note(report(dict.fromkeys(NAMES, "0")), NOW)
    delays = (timedelta(0), COLD_EVERY / 2, COLD_EVERY, timedelta(seconds=-1))
    assert [bool(order.cold(NAMES, NOW + delay)) for delay in delays] == [False, False, True, True]


def test_a_scope_that_fails_does_not_come_first_for_ever() -> None:
    order, failing = WatchOrder(), NAMES[30]
    order.note(report(dict.fromkeys(NAMES, "0")), NOW)
    later = NOW + COLD_EVERY
    order.note(WatchReport({}, 50, (), {failing: "broken"}), later)
    assert failing not in order.cold(NAMES, later)
