"""Which months' changes stand on a statement, and that each stands on one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput, Refused
from core.period_line import PeriodLine
from core.statement import (
    Close,
    LineSum,
    changed_lines,
    check_close,
    check_options,
    cut,
    rows_of_lines,
    rows_of_period,
)
from core.windows import month_on

MAY, JUNE, JULY, AUGUST, SEPTEMBER = (date(2026, n, 1) for n in range(5, 10))
AT = datetime(2026, 7, 5, tzinfo=UTC)
CLOSES = [Close(JUNE, AT), Close(JULY, AT + timedelta(days=31))]


def test_a_closed_month_is_cut_at_its_close_and_holds_what_changed_between_the_closes() -> None:
    found = cut(JULY, CLOSES)
    assert (found.own_at, found.corrected, found.since, found.until) == (CLOSES[1].closed_at, (JUNE,), AT, CLOSES[1].closed_at)


def test_corrections_are_posted_in_the_first_open_month_alone() -> None:
    august, september = cut(AUGUST, CLOSES), cut(SEPTEMBER, CLOSES)
    assert (august.own_at, august.corrected, august.since, august.until) == (None, (JUNE, JULY), CLOSES[1].closed_at, None)
    assert (september.corrected, september.since) == ((), None)


def test_as_of_shows_a_month_on_its_way_to_its_close() -> None:
    before = AT + timedelta(days=1)
    assert cut(JULY, CLOSES, before).own_at == before
    assert cut(JULY, CLOSES, before).corrected == (JUNE,)
    assert cut(JULY, CLOSES, AT - timedelta(days=1)).corrected == ()
    assert cut(JULY, CLOSES, AT + timedelta(days=99)) == cut(JULY, CLOSES)


@given(
    st.lists(st.integers(0, 60), min_size=0, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(-99, 99)), max_size=40),
)
def test_all_statements_together_are_the_newest_value(gaps: list[int], events: list[tuple[int, int]]) -> None:
    """Values of months change at instants (event n at minute n); closes fall between."""
    months = [MAY]
    while len(months) < 6:
        months.append(month_on(months[-1], 1))
    closes, minute = [], 0
    for month, gap in zip(months, gaps, strict=False):
        minute += gap + 1
        closes.append(Close(month, AT + timedelta(minutes=minute)))

    def value(month: date, at: datetime | None) -> int:
        return sum(v for n, (m, v) in enumerate(events) if months[m] == month and (at is None or AT + timedelta(minutes=n) <= at))

    stated = 0
    for month in months:
        found = cut(month, closes)
        stated += value(month, found.own_at)
        stated += sum(value(m, found.until) - value(m, found.since) for m in found.corrected)
    assert stated == sum(v for _, v in events)


@pytest.mark.parametrize(
    ("month", "closes", "first", "ended", "words"),
    [
        (JUNE, CLOSES, MAY, True, "2026-06 is closed"),
        (SEPTEMBER, CLOSES, MAY, True, "close 2026-08 first"),
        (AUGUST, CLOSES, MAY, False, "has not ended"),
        (JULY, [], MAY, True, "close 2026-05 first"),
    ],
)
def test_months_are_closed_once_in_order_after_they_ended(
    month: date, closes: list[Close], first: date | None, ended: bool, words: str
) -> None:
    with pytest.raises(Refused, match=words):
        check_close(month, closes, first, ended)
    check_close(AUGUST, CLOSES, MAY, True)
    check_close(MAY, [], MAY, True)
    check_close(MAY, [], None, True)


def test_months_turn_at_the_year() -> None:
    assert (month_on(date(2026, 1, 1), -1), month_on(date(2026, 12, 1), 1)) == (date(2025, 12, 1), date(2027, 1, 1))


SUMS = [
    LineSum({"org": "acme", "team": "a"}, "served", "USD", Decimal(3), Decimal(5)),
    LineSum({"org": "", "team": ""}, "idle", "USD", Decimal(2), Decimal(0)),
    LineSum({"org": "", "team": ""}, "unattributed", "USD", Decimal(1), Decimal(1)),
]


@pytest.mark.parametrize(
    ("basis", "idle", "amounts"),
    [
        ("allocation", "apart", {("acme/a", "served"): 3, ("platform", "idle"): 2, ("platform", "unattributed"): 1}),
        ("allocation", "spread", {("acme/a", "served"): 5, ("platform", "unattributed"): 1}),
        ("usage", "apart", {("acme/a", "served"): 3, ("platform", "unattributed"): 1}),
        ("usage", "spread", {("acme/a", "served"): 3, ("platform", "unattributed"): 1}),
    ],
)
def test_idle_time_is_apart_spread_or_on_no_row(basis: str, idle: str, amounts: dict[tuple[str, str], int]) -> None:
    rows = rows_of_lines("own", JULY, SUMS, basis, idle)  # type: ignore[arg-type]
    assert {(row.bearer, row.kind): row.amount for row in rows} == amounts


def test_unassigned_money_is_the_platforms_and_what_no_rule_takes_is_on_no_row() -> None:
    lines = [
        PeriodLine("unassigned", "lab/n1", "USD", Decimal(4)),
        PeriodLine("unassigned", "lab/n2", "USD", Decimal(1)),
        PeriodLine("shared", "storage", "USD", Decimal(2), org="acme", team="a"),
        PeriodLine("shared", "gateway", "USD", Decimal(3), "lab", "prod", "qwen"),
        PeriodLine("not_shared", "tax: none", "USD", Decimal(9)),
        PeriodLine("rounding", "finer", "USD", Decimal("1e-13")),
    ]
    rows = rows_of_period("own", JULY, lines, ("org", "deployment"))
    assert [(r.kind, r.bearer, r.keys["org"], r.keys["deployment"], r.amount) for r in rows] == [
        ("shared", "acme/a", "acme", "", 2), ("shared", "lab/prod/qwen", "", "lab/prod/qwen", 3),
        ("unassigned", "platform", "", "", 5),
    ]  # fmt: skip


def test_what_changed_takes_the_former_lines_to_the_new() -> None:
    one, two = PeriodLine("shared", "s", "USD", Decimal(5), org="a"), PeriodLine("shared", "s", "USD", Decimal(3), org="b")
    changed = changed_lines([PeriodLine("shared", "s", "USD", Decimal(7), org="a")], [one, two])
    assert [(line.org, line.amount) for line in changed] == [("a", 2), ("b", -3)]
    assert changed_lines([one, two], [two, one]) == []


@pytest.mark.parametrize(("basis", "idle", "field"), [("effective", "apart", "basis"), ("usage", "hidden", "idle")])
def test_other_words_are_refused_by_name(basis: str, idle: str, field: str) -> None:
    with pytest.raises(BadInput) as error:
        check_options(basis, idle)
    assert error.value.field == field
