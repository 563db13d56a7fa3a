"""Burn alerts on real spending: one incident and one message an episode, recovered told once, held while catching up."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from decide_world import MIN, NOW, meter, price_and_node
from sqlalchemy import Engine, text

from control.budgets import remove_budget, set_budget
from control.burn_alerts import watch_burns

pytestmark = pytest.mark.db
RED = "tenant:acme/red"
LEAST = Decimal("0.1")


def plan(db: Engine, amount: str = "6") -> None:
    with db.begin() as connection:
        set_budget(connection, RED, "day", Decimal(amount), "USD", "UTC", "ann", NOW, owner="bob")


def spend_until(db: Engine, end: datetime, minutes: int, requests: int = 40) -> None:
    with db.begin() as connection:
        for n in range(minutes):
            meter(connection, end - n * MIN, requests=requests)


def told(db: Engine) -> list[tuple[str, str, bool]]:
    query = """
        SELECT payload ->> 'phase', payload ->> 'severity', payload ->> 'firing' = 'true'
        FROM outbox WHERE key LIKE 'budget_burn:%' ORDER BY id
    """
    with db.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]  # type: ignore[misc]


@pytest.fixture
def burning(db: Engine) -> Engine:
    """An hour and a half that costs about as much as the A10G, on a plan of a quarter of that."""
    price_and_node(db)
    plan(db)
    spend_until(db, NOW, 90)
    return db


def test_an_episode_is_told_once_and_its_end_once(burning: Engine) -> None:
    (opened,) = watch_burns(burning, NOW, LEAST)
    assert (opened.scope, opened.cause, opened.phase, opened.severity) == (RED, "budget burn day", "fast burn", "page")
    assert opened.owner == "bob"
    assert opened.at_risk is not None
    assert watch_burns(burning, NOW + MIN, LEAST) == []
    later = NOW + timedelta(days=4)
    (recovered,) = watch_burns(burning, later, LEAST)
    assert recovered.recovered_at == later
    assert watch_burns(burning, later + MIN, LEAST) == []
    assert told(burning) == [("fast burn", "page", True), ("on plan", "warning", False)]


def test_a_budget_on_plan_and_none_at_all_tell_nothing(db: Engine) -> None:
    price_and_node(db)
    assert watch_burns(db, NOW, LEAST) == []
    plan(db, "500")
    spend_until(db, NOW, 60, requests=1)
    assert watch_burns(db, NOW, LEAST) == []
    assert told(db) == []


def test_less_money_than_the_minimum_alerts_nobody(burning: Engine) -> None:
    assert watch_burns(burning, NOW) == []


def test_an_incident_ends_with_its_budget(burning: Engine) -> None:
    watch_burns(burning, NOW, LEAST)
    with burning.begin() as connection:
        remove_budget(connection, RED, "day", "ann", NOW)
    (ended,) = watch_burns(burning, NOW + MIN, LEAST)
    assert ended.outcome.endswith("the budget is no longer in force")


def test_nothing_opens_or_ends_while_usage_catches_up(burning: Engine) -> None:
    with burning.begin() as connection:
        connection.execute(
            text("INSERT INTO stream_state (topic, catching_up, updated_at) VALUES ('usage', true, :now)"), {"now": NOW}
        )
    assert watch_burns(burning, NOW, LEAST) == []
