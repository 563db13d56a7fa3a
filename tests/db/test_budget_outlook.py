"""A budget's hour-of-week profile from its own closed hours: made hourly, kept, used by pace and burn, dropped with it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from decide_world import NOW, cap, meter, price_and_node
from sqlalchemy import Engine, text

from api.budget_view import Standings, budget_row, forecast_rows
from control.budget_outlook import EVERY, refresh_outlooks
from control.budgets import remove_budget, set_budget
from core.budgets import HOUR
from core.windows import QUARTER_HOUR, floor_time
from models.budget_outlook_repo import read_outlooks
from models.decide_repo import list_budgets

pytestmark = pytest.mark.db
_HOUR = text("""
    INSERT INTO ledger_team_hour (hour, org, team, kind, token_kind, currency, lines, tokens, requests, cost, allocated)
    VALUES (:hour, 'acme', 'red', 'served', 'input', :currency, 1, 1, 1, :cost, :cost)
""")
_HEAD = text("""
    INSERT INTO ledger_head (cluster, namespace, model_id, window_start, version) VALUES ('lab', 'prod', 'tiny', :at, 1)
""")


def closed_hours(db: Engine, weeks: int, currency: str = "USD") -> None:
    """Team red spends 1 an hour at night and 9 an hour from 9 to 17, up to the last closed quarter hour."""
    end = floor_time(NOW, HOUR)
    hours = [end - (n + 1) * HOUR for n in range(weeks * 168)]
    rows = [{"hour": at, "currency": currency, "cost": Decimal(9 if 9 <= at.hour < 17 else 1)} for at in hours]
    with db.begin() as connection:
        connection.execute(_HOUR, rows)
        connection.execute(_HEAD, {"at": end - QUARTER_HOUR})


def row_of(db: Engine, scope: str) -> dict[str, object]:
    with db.begin() as connection:
        stored = [s for s in list_budgets(connection) if str(s.budget.scope) == scope]
        return budget_row(Standings(0, lambda: 0.0).of(connection, stored, NOW, live=True)[0])


def test_pace_follows_the_profile_once_two_weeks_are_closed(db: Engine) -> None:
    price_and_node(db)
    cap(db, "5")
    with db.begin() as connection:
        meter(connection, NOW - timedelta(minutes=3))
    uniform = row_of(db, "tenant:acme/red")
    closed_hours(db, 3)
    assert refresh_outlooks(db, NOW) == 1
    shaped = row_of(db, "tenant:acme/red")
    assert (uniform["profile_weeks"], shaped["profile_weeks"]) == (None, 3)
    assert uniform["profile_reason"] == "no outlook was made yet: every hour is expected alike"
    assert Decimal(str(shaped["expected_share"])) < Decimal("0.43") < Decimal(str(uniform["expected_share"]))


def test_the_running_period_is_forecast_with_an_interval_and_read_back(db: Engine) -> None:
    with db.begin() as connection:
        set_budget(connection, "tenant:acme/red", "month", Decimal(2000), "USD", "UTC", "ann", NOW)
    before = forecasts(db)
    closed_hours(db, 6)
    refresh_outlooks(db, NOW)
    after = forecasts(db)
    assert (before["total"], before["reason"]) == (None, "the control loop has made no forecast yet")
    assert abs(Decimal(str(after["total"])) - 30 * (8 * 9 + 16)) < 2
    assert (after["low"], after["high"]) != (None, None)
    assert after["exhausted_at"] is not None
    with db.begin() as connection:
        (kept,) = read_outlooks(connection, [n.id for n in list_budgets(connection)]).values()
    assert kept.forecast is not None
    assert (kept.forecast.period_end, kept.forecast.total) == (after["period_end"], after["total"])


def forecasts(db: Engine) -> dict[str, object]:
    with db.begin() as connection:
        return forecast_rows(connection, list_budgets(connection), NOW)[0]


@pytest.mark.parametrize(
    ("weeks", "currency", "reason"),
    [(0, "USD", "no closed hour"), (1, "USD", "1 of 2 whole weeks"), (3, "EUR", "no closed hour in the budget's currency")],
)
def test_a_short_history_is_uniform_and_says_so(db: Engine, weeks: int, currency: str, reason: str) -> None:
    cap(db, "5")
    if weeks:
        closed_hours(db, weeks, currency)
    refresh_outlooks(db, NOW)
    row = row_of(db, "tenant:acme/red")
    assert row["profile_weeks"] is None
    assert reason in str(row["profile_reason"])


def test_an_outlook_is_made_hourly_and_dropped_with_its_budget(db: Engine) -> None:
    cap(db, "5")
    cap(db, "5", "service_tier:P1")
    cap(db, "5", "tenant:acme/red/p/u")
    assert [refresh_outlooks(db, at) for at in (NOW, NOW + EVERY / 2, NOW + EVERY)] == [3, 0, 3]
    with db.begin() as connection:
        ids = [stored.id for stored in list_budgets(connection)]
        assert len(read_outlooks(connection, ids)) == 3
        remove_budget(connection, "tenant:acme/red", "day", "ann", NOW)
    refresh_outlooks(db, NOW + EVERY)
    with db.begin() as connection:
        assert len(read_outlooks(connection, ids)) == 2
