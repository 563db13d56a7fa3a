"""Budgets: periods in a named zone, true hours, pace, burn, exhaustion, caps and their temporary increases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.budgets import (
    Budget,
    CapIncrease,
    Figure,
    HourProfile,
    burn_rate,
    default_basis,
    effective_cap,
    expected_share,
    pace,
    time_to_exhaustion,
)
from core.errors import BadInput, CurrencyMismatch
from core.money import Money, money
from core.scopes import Scope, parse_scope
from core.windows import Window

H = timedelta(hours=1)


def usd(text: str) -> Money:
    return money(text, "USD")


def rounded(figure: Figure) -> Decimal:
    assert figure.value is not None
    return round(figure.value, 20)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def budget(period: str = "month", zone: str = "UTC", amount: str = "1000", **more: object) -> Budget:
    return Budget(parse_scope("tenant:acme"), period, zone, usd(amount), "usage", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scope", "basis"),
    [
        ("tenant:acme", "allocation"), ("deployment:c/n/org/model", "allocation"), ("platform", "allocation"),
        ("tenant:acme/red", "usage"), ("tenant:acme/red/p", "usage"), ("tenant:acme/red/p/u", "usage"),
        ("service_tier:P2", "usage"),
    ],
)  # fmt: skip
def test_the_basis_follows_the_scope(scope: str, basis: str) -> None:
    assert default_basis(parse_scope(scope)) == basis
    assert str(parse_scope(scope)) == scope


@pytest.mark.parametrize(
    "text",
    ["", "tenant:", "tenant:a//b", "tenant:a/b/c/d/e", "tenant: a", "deployment:c/n", "deployment:c/n/", "service_tier:P9",
     "acme", 'tenant:a"b', "tenant:a\nb", "tenant:" + "x" * 121],
)  # fmt: skip
def test_a_broken_scope_is_named(text: str) -> None:
    with pytest.raises(BadInput, match="scope"):
        parse_scope(text)


@pytest.mark.parametrize(
    ("outer", "inner", "covers"),
    [
        ("platform", "tenant:a/b", True), ("tenant:a", "tenant:a/b/c", True), ("tenant:a/b", "tenant:a", False),
        ("tenant:a", "tenant:ab", False), ("tenant:a", "deployment:a/b/c", False), ("tenant:a/b", "tenant:a/b", True),
    ],
)  # fmt: skip
def test_a_scope_covers_its_parts(outer: str, inner: str, covers: bool) -> None:
    assert parse_scope(outer).covers(parse_scope(inner)) is covers


@pytest.mark.parametrize(
    ("period", "zone", "instant", "start", "end"),
    [
        ("day", "Asia/Tokyo", "2026-07-31T14:59", "2026-07-30T15:00", "2026-07-31T15:00"),
        ("day", "Asia/Tokyo", "2026-07-31T15:01", "2026-07-31T15:00", "2026-08-01T15:00"),
        ("day", "Asia/Shanghai", "2026-11-30T00:00", "2026-11-29T16:00", "2026-11-30T16:00"),
        ("day", "Europe/Berlin", "2026-10-25T12:00", "2026-10-24T22:00", "2026-10-25T23:00"),
        ("day", "Europe/Berlin", "2026-03-29T12:00", "2026-03-28T23:00", "2026-03-29T22:00"),
        ("week", "UTC", "2026-11-29T12:00", "2026-11-23T00:00", "2026-11-30T00:00"),
        ("month", "America/New_York", "2026-12-01T04:59", "2026-11-01T04:00", "2026-12-01T05:00"),
    ],
)
def test_periods_reset_at_local_midnight(period: str, zone: str, instant: str, start: str, end: str) -> None:
    assert budget(period, zone).window(at(instant)) == Window(at(start), at(end))


@pytest.mark.parametrize(("day", "hours"), [("2026-10-25T12:00", 25), ("2026-03-29T12:00", 23), ("2026-06-01T12:00", 24)])
def test_a_day_in_a_month_is_worth_its_true_hours(day: str, hours: int) -> None:
    month = budget("month", "Europe/Berlin").window(at(day))
    one = budget("day", "Europe/Berlin").window(at(day))
    part = expected_share(month, one.end, "Europe/Berlin") - expected_share(month, one.start, "Europe/Berlin")
    assert part * (month.duration // H) == pytest.approx(hours)


OFFICE = HourProfile(tuple(Decimal(10 if d < 5 and 9 <= h < 17 else 1) for d in range(7) for h in range(24)))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"])
@pytest.mark.parametrize("profile", [None, OFFICE], ids=["uniform", "office hours"])
@pytest.mark.parametrize("instant", ["2026-10-25T12:00", "2026-03-29T12:00", "2026-04-04T18:00", "2026-11-30T12:00"])
def test_the_expected_share_runs_from_nought_to_one_and_never_falls(zone: str, profile: HourProfile | None, instant: str) -> None:
    for period in ("day", "week"):
        window = budget(period, zone).window(at(instant))
        steps = [window.start + n * timedelta(minutes=30) for n in range(int(window.duration / timedelta(minutes=30)) + 1)]
        shares = [expected_share(window, step, zone, profile) for step in steps]
        assert shares[0] == 0
        assert expected_share(window, window.end, zone, profile) == 1
        assert all(a <= b for a, b in pairwise(shares))


def test_office_hours_expect_most_by_five() -> None:
    window = budget("day").window(at("2026-11-30T00:00"))
    for hour, weight in (("09:00", 9), ("09:30", 14), ("17:00", 89)):
        assert expected_share(window, at(f"2026-11-30T{hour}"), "UTC", OFFICE) * 96 == pytest.approx(weight)


def test_a_day_whose_profile_is_all_zero_falls_back_to_elapsed_time() -> None:
    weekdays = HourProfile(tuple(Decimal(d < 5) for d in range(7) for _ in range(24)))
    sunday = budget("day").window(at("2026-11-29T00:00"))
    assert expected_share(sunday, at("2026-11-29T06:00"), "UTC", weekdays) == Decimal("0.25")


def test_pace_is_spent_over_expected() -> None:
    found = pace(budget("day", amount="100"), usd("50"), at("2026-11-30T06:00"))
    assert (found.spent_share.value, found.expected_share, found.ratio.value) == (Decimal("0.5"), Decimal("0.25"), Decimal(2))


def test_pace_is_undefined_rather_than_zero() -> None:
    start = at("2026-11-30T00:00")
    assert pace(budget("day"), None, start).ratio.reason == "spend is unknown"
    assert pace(budget("day"), usd("1"), start).ratio.reason == "nothing is expected of the period so far"
    with pytest.raises(CurrencyMismatch):
        pace(budget("day"), money("1", "EUR"), start)


def test_a_steady_overspend_of_423_percent_burns_at_423_percent_from_the_first_hour() -> None:
    november = budget("month", amount="720")
    hour = Window(at("2026-11-01T00:00"), at("2026-11-01T01:00"))
    assert rounded(burn_rate(november, usd("4.23"), hour)) == Decimal("4.23")
    assert burn_rate(november, None, hour).reason == "spend is unknown"


def test_burn_across_a_period_border_expects_both_parts() -> None:
    daily = budget("day", amount="24")
    assert rounded(burn_rate(daily, usd("2"), Window(at("2026-11-30T23:00"), at("2026-12-01T01:00")))) == 1


@pytest.mark.parametrize(
    ("spend", "limit", "recent", "left", "reason"),
    [
        ("50", "100", "10", timedelta(hours=5), ""),
        ("0", "100", "100", timedelta(hours=1), ""),
        ("100", "100", "10", timedelta(0), "the limit is reached"),
        ("140", "100", "0", timedelta(0), "the limit is reached"),
        ("50", "100", "0", None, "nothing was spent lately"),
        ("50", "100", "1", None, "not within this period at the recent speed"),
        (None, "100", "1", None, "spend is unknown"),
        ("50", None, "1", None, "no cap was set"),
        ("50", "100", None, None, "recent spend is unknown"),
    ],
)
def test_time_to_exhaustion(
    spend: str | None, limit: str | None, recent: str | None, left: timedelta | None, reason: str
) -> None:
    now = at("2026-11-30T12:00")
    values = [usd(v) if v is not None else None for v in (spend, limit, recent)]
    found = time_to_exhaustion(values[0], values[1], values[2], H, at("2026-12-01T00:00"), now)
    assert (found.left, found.at, found.reason) == (left, None if left is None else now + left, reason)


def test_a_cap_increase_counts_only_while_it_is_in_force() -> None:
    starts, ends = at("2026-11-30T12:00"), at("2026-11-30T14:00")
    more = [CapIncrease(usd("25"), starts, ends, "ann", "launch day"), CapIncrease(usd("5"), starts, ends - H, "bob", "demo")]
    wanted = {starts - H: "100", starts: "130", starts + H: "125", ends: "100"}
    assert {when: effective_cap(usd("100"), more, when) for when in wanted} == {k: usd(v) for k, v in wanted.items()}
    assert effective_cap(None, more, starts) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"amount": "0"}, "amount"), ({"amount": "-1"}, "amount"), ({"cap": usd("0")}, "cap"),
        ({"cap": money("5", "EUR")}, "cap"), ({"zone": "Mars/Base"}, "zone"), ({"period": "decade"}, "period"),
    ],
)  # fmt: skip
def test_a_bad_budget_names_its_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(BadInput) as error:
        budget(**change)  # type: ignore[arg-type]
    assert error.value.field == field


def test_a_platform_budget_needs_an_owner() -> None:
    with pytest.raises(BadInput, match="owner"):
        Budget(Scope("platform"), "month", "UTC", usd("1"), "allocation")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"approver": " "}, "approver"), ({"reason": ""}, "reason"), ({"extra": usd("0")}, "extra"),
        ({"expires_at": at("2026-01-01")}, "expires_at"),
    ],
)  # fmt: skip
def test_a_bad_increase_names_its_field(change: dict[str, object], field: str) -> None:
    good = {"extra": usd("1"), "starts_at": at("2026-01-01"), "expires_at": at("2026-01-02"), "approver": "ann", "reason": "x"}
    with pytest.raises(BadInput) as error:
        CapIncrease(**{**good, **change})  # type: ignore[arg-type]
    assert error.value.field == field


@given(st.lists(st.decimals("0.01", "1000", places=2), min_size=1, max_size=20))
def test_burn_of_equal_parts_averages_to_the_burn_of_the_whole(parts: list[Decimal]) -> None:
    month, start = budget("month", amount="720"), at("2026-11-02T00:00")
    burns = [
        burn_rate(month, Money(part, "USD"), Window(start + n * H, start + (n + 1) * H)).value for n, part in enumerate(parts)
    ]
    whole = burn_rate(month, Money(sum(parts), "USD"), Window(start, start + len(parts) * H)).value  # type: ignore[arg-type]
    assert sum(burns) / len(parts) == pytest.approx(whole)  # type: ignore[arg-type, type-var]
