"""Breakers and whoever else finds something write incidents, in the transaction of what caused them."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from decide_world import MIN, NOW, POLICY, cap, look, meter, price_and_node
from sqlalchemy import Engine

from control import breakers, incidents
from control.breakers import AllowanceRequest, find_breaker
from control.budget_watch import budget_spend, read_spend
from control.incident_view import story
from core.errors import BadInput, Conflict, NotFound
from core.incident import Change, Incident
from models.audit_repo import list_audit
from models.decide_repo import list_budgets
from models.incident_repo import list_incidents, list_moments

pytestmark = pytest.mark.db
RED = "tenant:acme/red"
ALERT = Change(RED, "rule:unit-cost", True, "warning", "ALERT", NOW, "control", "unit cost is 2 × its baseline")


def tripped(db: Engine) -> None:
    """Red's armed breaker opens."""
    price_and_node(db)
    cap(db, "1000")
    with db.begin() as connection:
        breakers.enforce(connection, find_breaker(connection, RED).id, "ann", "go", NOW, POLICY, read_shadow_report=True)
        meter(connection)
    with db.begin() as connection:
        spend = read_spend(connection, list_budgets(connection)[0].budget, NOW).spend
    assert spend is not None
    cap(db, str(spend.amount))
    look(db)


def all_of(db: Engine) -> list[Incident]:
    with db.connect() as connection:
        return list_incidents(connection)


def test_a_trip_and_its_reset_are_one_incident_with_the_money_spent_after_it(db: Engine) -> None:
    tripped(db)
    (one,) = all_of(db)
    assert (one.cause, one.phase, one.severity, one.shadow, one.is_open) == ("breaker", "open", "page", False, True)
    assert one.trip is not None
    look(db, NOW + MIN)
    assert all_of(db) == [one], "looking again tells nobody"
    with db.begin() as connection:
        meter(connection)
    with db.begin() as connection:
        told = story(connection, one.id, NOW + MIN, budget_spend)
        assert told["incident"]["overshoot"]["amount"] > 0
        allowance = AllowanceRequest(new_cap=Decimal("1000"))
        found = find_breaker(connection, RED)
        breakers.reset(connection, found.id, "ann", "legitimate", allowance, NOW + MIN, POLICY, budget_spend)
    (after,) = all_of(db)
    assert (after.is_open, after.outcome) == (False, "recovered by ann: legitimate")
    assert after.overshoot is not None
    assert after.overshoot.amount > 0
    with db.begin() as connection:
        told = story(connection, one.id, NOW + 2 * MIN, budget_spend)
    assert [m["kind"] for m in told["moments"]] == ["opened", "recovered"]
    assert told["people"] == ["ann"]
    assert [row["key"].split(":")[-1] for row in told["sent"]] == ["page", "notify"]


def test_several_finders_of_one_thing_make_one_incident(db: Engine) -> None:
    def find() -> None:
        with db.begin() as connection:
            incidents.note(connection, ALERT)

    threads = [threading.Thread(target=find) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [i.seq for i in all_of(db)] == [1]


def test_other_causes_and_later_episodes_are_incidents_of_their_own(db: Engine) -> None:
    with db.begin() as connection:
        incidents.note(connection, ALERT)
        incidents.note(connection, replace(ALERT, cause="rule:kv-use"))
        incidents.note(connection, replace(ALERT, firing=False, phase="OK", reason="calm"))
        incidents.note(connection, replace(ALERT, at=NOW + MIN))
    assert [(i.cause, i.is_open) for i in all_of(db)] == [
        ("rule:unit-cost", True), ("rule:kv-use", True), ("rule:unit-cost", False),
    ]  # fmt: skip


def test_people_are_named_audited_and_stop_the_reminders(db: Engine) -> None:
    with db.begin() as connection:
        made = incidents.note(connection, ALERT)
        assert made is not None
        assert incidents.remind_due(connection, NOW + timedelta(hours=3)) == []
        assert [i.id for i in incidents.remind_due(connection, NOW + timedelta(hours=4))] == [made.id]
        assert incidents.remind_due(connection, NOW + timedelta(hours=5)) == []
        incidents.acknowledge(connection, made.id, "ann", "on it", NOW)
        incidents.assign(connection, made.id, "bob", "ann", "his fleet", NOW)
        incidents.comment(connection, made.id, "bob", "looking", NOW)
        assert incidents.remind_due(connection, NOW + timedelta(hours=50)) == []
        kinds = [m.kind for m in list_moments(connection, made.id)]
        assert [r.action for r in list_audit(connection)] == [f"incident.{k}" for k in ("commented", "assigned", "acknowledged")]
    assert kinds == ["opened", "reminded", "acknowledged", "assigned", "commented"]


def test_what_a_person_may_not_do_is_told(db: Engine) -> None:
    with db.begin() as connection:
        made = incidents.note(connection, ALERT)
        assert made is not None
        incidents.acknowledge(connection, made.id, "ann", "on it", NOW)
        with pytest.raises(Conflict, match="acknowledged by ann"):
            incidents.acknowledge(connection, made.id, "bob", "me too", NOW)
        with pytest.raises(NotFound, match="no incident 99"):
            incidents.comment(connection, 99, "bob", "x", NOW)
        with pytest.raises(BadInput, match="reason"):
            incidents.comment(connection, made.id, "bob", " ", NOW)
        with pytest.raises(BadInput, match="scope"):
            incidents.note(connection, replace(ALERT, scope="everybody"))
