"""Budgets of any calendar period, what rollover carries, and the tree they stand in."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.budget_tree import budget_tree, unbudgeted_spend
from core.budgets import Budget, carry_over
from core.errors import BadInput
from core.money import Money, money
from core.scopes import parse_scope
from core.windows import PERIODS, Window, period_window


def budget(scope: str, amount: str = "100", period: str = "month", **more: object) -> Budget:
    given = {"zone": "UTC", "cost_basis": "usage", "owner": "ops", "amount": money(amount, "USD"), **more}
    return Budget(parse_scope(scope), period, **given)  # type: ignore[arg-type]


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("period", "fiscal_start", "zone", "start", "end"),
    [
        ("quarter", 1, "UTC", "2026-10-01", "2027-01-01"),
        ("quarter", 2, "UTC", "2026-11-01", "2027-02-01"),
        ("quarter", 12, "UTC", "2026-09-01", "2026-12-01"),
        ("year", 1, "UTC", "2026-01-01", "2027-01-01"),
        ("year", 4, "UTC", "2026-04-01", "2027-04-01"),
        ("year", 12, "UTC", "2025-12-01", "2026-12-01"),
        ("quarter", 1, "Europe/Berlin", "2026-09-30T22:00", "2026-12-31T23:00"),
        ("year", 4, "Asia/Shanghai", "2026-03-31T16:00", "2027-03-31T16:00"),
    ],
)
def test_quarters_and_years_begin_where_the_organisation_says(
    period: str, fiscal_start: int, zone: str, start: str, end: str
) -> None:
    made = budget("tenant:acme", period=period, zone=zone, fiscal_start=fiscal_start)
    assert made.window(day("2026-11-30T12:00")) == Window(day(start), day(end))


@given(
    at=st.datetimes(day("2001-01-01").replace(tzinfo=None), day("2060-01-01").replace(tzinfo=None), timezones=st.just(UTC)),
    period=st.sampled_from(PERIODS),
    fiscal_start=st.integers(1, 12),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Shanghai"]),
)
def test_periods_follow_each_other_without_a_hole(at: datetime, period: str, fiscal_start: int, zone: str) -> None:
    window = period_window(period, at, zone, fiscal_start)  # type: ignore[arg-type]
    assert window.contains(at)
    assert period_window(period, window.end, zone, fiscal_start).start == window.end  # type: ignore[arg-type]


@pytest.mark.parametrize(("period", "month"), [("year", 0), ("year", 13), ("month", 4)])
def test_a_fiscal_start_is_a_month_of_quarters_and_years(period: str, month: int) -> None:
    with pytest.raises(BadInput) as error:
        budget("tenant:acme", period=period, fiscal_start=month)
    assert error.value.field == "fiscal_start"


@pytest.mark.parametrize(
    ("before", "spent", "missing", "carried", "says"),
    [
        ("100", "60", "", "40", ""),
        ("100", "100", "", "0", ""),
        ("100", "130", "", "0", ""),
        (None, "60", "", "0", "no budget ruled"),
        ("100", None, "", None, "not known"),
        ("100", "60", "lower bound, without x", None, "lower bound"),
    ],
)
def test_what_was_left_is_carried_once_and_only_when_it_is_known(
    before: str | None, spent: str | None, missing: str, carried: str | None, says: str
) -> None:
    rolling = budget("tenant:acme", rollover=True)
    found = carry_over(rolling, before and money(before, "USD"), spent and money(spent, "USD"), missing)  # type: ignore[arg-type]
    assert found.amount == (None if carried is None else money(carried, "USD"))
    assert says in found.reason


def test_without_the_option_nothing_is_carried_and_another_currency_is_not_guessed() -> None:
    assert carry_over(budget("tenant:acme"), money("9", "USD"), money("1", "USD")).amount == money("0", "USD")
    assert carry_over(budget("tenant:acme", rollover=True), money("9", "EUR"), money("1", "EUR")).amount is None


def test_each_stands_under_the_nearest_above_it() -> None:
    budgets = [
        budget("tenant:acme", "100"),
        budget("tenant:acme/red", "70"),
        budget("tenant:acme/blue/p/u", "50"),
        budget("tenant:acme/red/p", "20"),
        budget("tenant:acme/red", "5", period="day"),
        budget("tenant:acme/red/q", "5", zone="Asia/Tokyo"),
        budget("platform", "900"),
        budget("deployment:c/n/m", "400"),
        budget("service_tier:P1", "1"),
        budget("tenant:acmex/red", "1"),
    ]
    nodes = {node.place: node for node in budget_tree(budgets)}
    assert {n: node.parent for n, node in nodes.items() if node.parent is not None} == {1: 0, 2: 0, 3: 1, 7: 6}
    assert [nodes[n].depth for n in (0, 1, 2, 3)] == [0, 1, 1, 2]
    assert (nodes[0].assigned, nodes[0].unassigned) == (money("120", "USD"), money("-20", "USD"))
    assert nodes[6].unassigned == money("500", "USD")


def test_what_nobodys_budget_holds_is_told_only_on_one_basis() -> None:
    budgets = [budget("tenant:a"), budget("tenant:a/x"), budget("tenant:a/y")]
    root = budget_tree(budgets)[0]
    spends: list[Money | None] = [money(text, "USD") for text in ("10", "3", "4.5")]
    assert unbudgeted_spend(root, spends) == money("2.5", "USD")
    assert unbudgeted_spend(root, [spends[0], None, spends[2]]) is None
    mixed = budget_tree([budget("tenant:a", cost_basis="allocation"), *budgets[1:]])[0]
    assert mixed.mixed
    assert unbudgeted_spend(mixed, spends) is None


@given(st.lists(st.sampled_from([f"tenant:{p}" for p in ("a", "a/b", "a/b/c", "a/d", "e", "e/f/g/h")]), unique=True))
def test_every_budget_stands_once_and_amounts_add_up(scopes: list[str]) -> None:
    budgets = [budget(scope, str(n + 1)) for n, scope in enumerate(scopes)]
    nodes = budget_tree(budgets)
    assert sorted(node.place for node in nodes) == list(range(len(budgets)))
    seen: set[int] = set()
    for node in nodes:
        assert node.parent is None or node.parent in seen
        seen.add(node.place)
        assert node.assigned + node.unassigned == budgets[node.place].amount
    assert sum(len(node.children) for node in nodes) == sum(node.parent is not None for node in nodes)
    assert all(Decimal(node.depth) <= 3 for node in nodes)
