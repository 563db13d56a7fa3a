"""What the control loop keeps of budgets: the figures are those measured live, written only when they change, never shown old."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from decide_world import NOW, cap, meter, price_and_node
from sqlalchemy import Engine, text

from api.budget_view import Standings, budget_row
from control.budget_standing import STALE_AFTER, BudgetStanding, keep_standings, kept_standings, measure
from control.budgets import remove_budget
from models.budget_status_repo import read_statuses
from models.decide_repo import list_budgets

pytestmark = pytest.mark.db
EVERY_S = 5.0
SECOND = timedelta(seconds=1)
SCOPES = (
    ("tenant:acme/red", "day"),
    ("tenant:acme/red", "week"),
    ("tenant:acme", "month"),
    ("tenant:acme/blue/nobody", "day"),
    ("deployment:lab/prod/tiny", "day"),
    ("deployment:lab/prod/unpriced", "day"),
    ("service_tier:P1", "day"),
)


@pytest.fixture
def spending(db: Engine) -> Engine:
    """Budgets of every kind of scope, and usage of two teams over the last two hours."""
    price_and_node(db)
    for scope, period in SCOPES:
        cap(db, "5", scope, period=period)
    with db.begin() as connection:
        for minutes in (1, 14, 40, 110):
            meter(connection, NOW - timedelta(minutes=minutes))
            meter(connection, NOW - timedelta(minutes=minutes), team="blue", requests=3)
    return db


def kept(db: Engine, now: datetime = NOW) -> dict[int, BudgetStanding]:
    with db.begin() as connection:
        return kept_standings(connection, list_budgets(connection), now)


def live(db: Engine) -> dict[int, BudgetStanding]:
    with db.begin() as connection:
        return {s.stored.id: s for s in measure(connection, list_budgets(connection), NOW)}


def test_what_is_kept_is_what_would_be_measured(spending: Engine) -> None:
    keep_standings(spending, NOW, EVERY_S)
    found, measured = kept(spending), live(spending)
    assert len(found) == len(SCOPES)
    assert {n: replace(s, live=True) for n, s in found.items()} == measured
    assert [{**budget_row(s), "live": True} for s in found.values()] == [budget_row(measured[n]) for n in found]
    assert any(s.spent.amount is not None and s.spent.amount.amount for s in found.values())


def test_figures_are_as_of_the_time_they_were_measured(spending: Engine) -> None:
    keep_standings(spending, NOW, EVERY_S)
    before = {n: budget_row(s) for n, s in kept(spending).items()}
    later = {n: budget_row(s) for n, s in kept(spending, NOW + 7 * SECOND).items()}
    assert later == before
    assert {row["as_of"] for row in later.values()} == {NOW}


def test_a_quiet_round_writes_no_row_and_says_when_it_looked(db: Engine) -> None:
    price_and_node(db)
    cap(db, "5")
    with db.begin() as connection:
        meter(connection, NOW - timedelta(minutes=3))
    assert keep_standings(db, NOW, EVERY_S) == 1
    assert keep_standings(db, NOW + 5 * SECOND, EVERY_S) == 0
    with db.begin() as connection:
        statuses = read_statuses(connection)
        meter(connection, NOW + 6 * SECOND)
    assert statuses is not None
    assert statuses.at == NOW + 5 * SECOND
    assert keep_standings(db, NOW + 10 * SECOND, EVERY_S) == 1


def test_a_budget_no_longer_in_force_is_forgotten(spending: Engine) -> None:
    keep_standings(spending, NOW, EVERY_S)
    with spending.begin() as connection:
        remove_budget(connection, "tenant:acme", "month", "ann", NOW)
    assert keep_standings(spending, NOW + SECOND, EVERY_S) >= 1
    with spending.connect() as connection:
        statuses = read_statuses(connection)
    assert statuses is not None
    assert len(statuses.by_budget) == len(SCOPES) - 1


@pytest.mark.parametrize(
    ("after", "is_kept"),
    [
        (timedelta(0), True),
        (STALE_AFTER * timedelta(seconds=EVERY_S), True),
        (STALE_AFTER * timedelta(seconds=EVERY_S) + SECOND, False),
    ],
)
def test_what_is_older_than_two_rounds_is_measured_anew(spending: Engine, after: timedelta, is_kept: bool) -> None:
    keep_standings(spending, NOW, EVERY_S)
    with spending.begin() as connection:
        found = Standings(0, lambda: 0.0).of(connection, list_budgets(connection), NOW + after)
    assert {(s.live, s.at) for s in found} == {(not is_kept, NOW if is_kept else NOW + after)}


def test_a_new_period_a_new_version_and_a_budget_never_measured_are_measured_live(spending: Engine) -> None:
    midnight = NOW.replace(hour=0, minute=0) + timedelta(days=1)  # a Tuesday, the first of the month
    cap(spending, "5", "tenant:acme", period="week")
    keep_standings(spending, midnight - SECOND, EVERY_S)
    cap(spending, "7", "tenant:acme", period="week")
    cap(spending, "7", "tenant:acme/blue", period="week")
    with spending.begin() as connection:
        found = Standings(0, lambda: 0.0).of(connection, list_budgets(connection), midnight)
    assert [(str(s.stored.budget.scope), s.stored.budget.period) for s in found if not s.live] == [("tenant:acme/red", "week")]
    assert {s.at for s in found if s.live} == {midnight}


def test_live_measures_whatever_is_kept(spending: Engine) -> None:
    keep_standings(spending, NOW, EVERY_S)
    with spending.begin() as connection:
        found = Standings(60, lambda: 0.0).of(connection, list_budgets(connection), NOW + SECOND, live=True)
    assert {(s.live, s.at) for s in found} == {(True, NOW + SECOND)}


def test_the_control_loop_fixes_unit_rates_before_anybody_asks(db: Engine) -> None:
    price_and_node(db)
    with db.begin() as connection:
        meter(connection, NOW - timedelta(minutes=2))
    keep_standings(db, NOW, EVERY_S)
    with db.begin() as connection:
        frozen = connection.execute(text("SELECT window_start FROM running_rate")).scalars().all()
    assert [at.astimezone(UTC) for at in frozen] == [NOW - timedelta(minutes=5)]
