"""From metered usage to a refusing policy and back, on a real database with the real running cost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from decide_world import MIN, NOW, POLICY, D, cap, look, meter, phases, price_and_node
from sqlalchemy import Connection, Engine, text

from control import breakers
from control.breakers import AllowanceRequest, find_breaker, pause_all
from control.budget_watch import Reading, budget_spend, read_spend, watch
from control.budgets import add_exemption, increase_cap, remove_budget, set_limit
from control.ledger_close import close_all
from control.policy_publish import publish
from core.breaker_values import Breaker, BreakerPolicy, CapReading, CapSignal
from core.budgets import Budget
from core.errors import Conflict, NotFound, Refused
from core.money import money
from core.policy import PolicyEntry
from models.audit_repo import list_audit, verify_chain
from models.breaker_repo import list_events
from models.decide_repo import find_budget, list_budgets
from models.policy_repo import latest_policy
from models.tables import StreamStateRow

pytestmark = pytest.mark.db
RED = "tenant:acme/red"


@pytest.fixture
def world(db: Engine) -> Engine:
    price_and_node(db)
    return db


def act(db: Engine, action: str, *args: Any, now: Any = NOW, **more: Any) -> Breaker:
    with db.begin() as connection:
        breaker_id = find_breaker(connection, RED).id
        found: Breaker = getattr(breakers, action)(connection, breaker_id, "ann", *args, now, POLICY, **more)
        return found


def arm(db: Engine) -> Breaker:
    return act(db, "enforce", "go", read_shadow_report=True)


def reset(db: Engine, allowance: AllowanceRequest | None, now: Any = NOW) -> Breaker:
    return act(db, "reset", "legitimate", allowance, now=now, spend=budget_spend)


def told(db: Engine, now: Any = NOW) -> tuple[PolicyEntry, ...]:
    with db.begin() as connection:
        publish(connection, now)
        found = latest_policy(connection)
    assert found is not None
    return found.entries


def spent(db: Engine, now: Any = NOW) -> Decimal:
    with db.begin() as connection:
        reading = read_spend(connection, list_budgets(connection)[0].budget, now)
    assert reading.spend is not None
    return reading.spend.amount


def tripped(db: Engine, enforced: bool = True) -> Decimal:
    """Red has an armed breaker whose cap is what it has spent; returns that amount."""
    cap(db, "1000")
    if enforced:
        arm(db)
    with db.begin() as connection:
        meter(connection)
    amount = spent(db)
    assert amount > 0
    cap(db, str(amount))
    assert [b.phase for b in look(db).changed] == ["open"]
    return amount


def test_one_request_that_crosses_the_cap_makes_guards_refuse(world: Engine) -> None:
    cap(world, "1000")
    arm(world)
    assert told(world) == ()
    with world.begin() as connection:
        meter(connection)
    cap(world, str(spent(world) * 2))
    assert look(world).changed == ()
    with world.begin() as connection:
        meter(connection)
    assert [b.phase for b in look(world).changed] == ["open"]
    (entry,) = told(world)
    assert (entry.scope, entry.tier, entry.action, entry.shadow) == (RED, 3, "reject", False)
    assert 30 <= entry.retry_after_s <= 90
    assert "day budget's hard limit" in entry.reason


def test_in_shadow_the_entry_is_counted_and_not_obeyed(world: Engine) -> None:
    tripped(world, enforced=False)
    assert [entry.shadow for entry in told(world)] == [True]


def test_looking_again_changes_nothing_and_sends_nothing_twice(world: Engine) -> None:
    tripped(world)

    def counts() -> list[int]:
        with world.connect() as connection:
            return [
                connection.execute(text(f"SELECT count(*) FROM {t}")).scalar_one() for t in ("outbox", "breaker_event", "audit")
            ]

    before = counts()
    for minute in range(3):
        assert look(world, NOW + minute * MIN).changed == ()
    assert counts() == before


def test_two_runners_at_once_act_once(world: Engine) -> None:
    cap(world, "1000")
    arm(world)
    with world.begin() as connection:
        meter(connection)
    cap(world, str(spent(world)))
    threads = [threading.Thread(target=watch, args=(world, NOW, POLICY)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with world.connect() as connection:
        opened = [e for e in list_events(connection) if e.to_phase == "open" and e.from_phase == "closed"]
        keys = connection.execute(text("SELECT key FROM outbox WHERE payload->>'to_phase' = 'open'")).scalars().all()
    assert len(opened) == 1
    assert len(keys) == 1


def test_an_idle_hour_or_a_late_row_alerts_and_does_not_trip(world: Engine) -> None:
    cap(world, "1000")
    arm(world)
    with world.begin() as connection:
        meter(connection, NOW - 90 * MIN)
    assert close_all(world, NOW).failures == []
    cap(world, str(spent(world)))
    (alerted,) = look(world).changed
    assert (alerted.phase, alerted.over_unmetered) == ("closed", True)
    with world.begin() as connection:
        meter(connection)
    assert [b.phase for b in look(world).changed] == ["open"]


def test_without_a_price_nothing_opens_and_nothing_closes(db: Engine) -> None:
    cap(db, "0.000001")
    arm(db)
    with db.begin() as connection:
        meter(connection)
    assert look(db).changed == ()
    assert phases(db) == {RED: "closed"}


def test_a_budget_in_another_currency_is_no_data_and_says_so(world: Engine) -> None:
    from control.budgets import set_budget

    with world.begin() as connection:
        set_budget(connection, RED, "day", Decimal("0.01"), "EUR", "UTC", "ann", NOW, cap=Decimal("0.01"))
        meter(connection)
        reading = read_spend(connection, list_budgets(connection)[0].budget, NOW)
    assert (reading.spend, reading.reason) == (None, "spend is in USD, the budget in EUR: no exchange rate")
    assert look(world).changed == ()


def test_one_scopes_failure_does_not_stop_the_others(world: Engine) -> None:
    for team in ("red", "blue"):
        cap(world, "1", f"tenant:acme/{team}")
    with world.begin() as connection:
        meter(connection)

    def source(connection: Connection, budgets: Sequence[Budget], now: datetime) -> list[Reading]:
        if any("blue" in str(budget.scope) for budget in budgets):
            connection.execute(text("SELECT 1/0"))
        return [Reading(money("2", "USD")) for _ in budgets]

    report = watch(world, NOW, POLICY, source)
    assert [b.scope for b in report.changed] == [RED]
    assert list(report.failed) == ["tenant:acme/blue"]


def test_a_reset_needs_reason_and_allowance_and_writes_both(world: Engine) -> None:
    amount = tripped(world)
    with pytest.raises(Refused, match="needs an allowance"):
        reset(world, None)
    with pytest.raises(Refused, match="trip again at once"):
        reset(world, AllowanceRequest(new_cap=amount))
    with pytest.raises(Refused, match="not both"):
        reset(world, AllowanceRequest(new_cap=amount, extra=amount))
    assert phases(world) == {RED: "open"}
    closed = reset(world, AllowanceRequest(new_cap=amount * 3))
    assert (closed.phase, closed.enforced) == ("closed", True)
    assert look(world).changed == ()
    assert told(world) == ()
    with world.connect() as connection:
        budget = find_budget(connection, list_budgets(connection)[0].budget.scope, "day")
        assert budget is not None
        assert budget.budget.cap == money(amount * 3, "USD")
        assert budget.budget.amount == money(amount, "USD")
        trail = {record.action: record for record in list_audit(connection)}
    assert (trail["breaker.reset"].actor, trail["breaker.reset"].detail["reason"]) == ("ann", "legitimate")
    assert "new_cap" in trail["budget.allowance"].detail


def test_an_extra_until_a_time_lets_traffic_through_until_then(world: Engine) -> None:
    amount = tripped(world)
    reset(world, AllowanceRequest(extra=amount, until=NOW + 20 * MIN))
    assert look(world, NOW + 10 * MIN).changed == ()
    assert [b.phase for b in look(world, NOW + 20 * MIN).changed] == ["open"]


def test_it_stays_open_over_midnight_unless_signed_beforehand(world: Engine) -> None:
    tripped(world)
    tomorrow = NOW + timedelta(days=1)
    assert look(world, tomorrow).changed == ()
    act(world, "approve", "the batch is over by then")
    (closed,) = look(world, tomorrow).changed
    assert closed.phase == "closed"
    assert "signed beforehand by ann" in closed.reason


def test_catching_up_holds_a_signed_close(world: Engine) -> None:
    tripped(world)
    act(world, "approve", "the batch is over by then")
    with world.begin() as connection:
        connection.execute(
            text(f"INSERT INTO {StreamStateRow.__tablename__} (topic, catching_up, updated_at) VALUES ('usage', true, now())")
        )
    assert look(world, NOW + timedelta(days=1)).changed == ()


def test_the_blast_limit_holds_a_further_trip_and_pages(world: Engine) -> None:
    cap(world, "1000")
    arm(world)
    with world.begin() as connection:
        meter(connection)
        meter(connection, team="blue", requests=30, status="refused")
        meter(connection, team="blue", requests=10)
    cap(world, str(spent(world)))
    (held,) = look(world).changed
    assert (held.phase, held.held) == ("closed", True)
    with world.connect() as connection:
        severity = connection.execute(text("SELECT payload->>'severity' FROM outbox ORDER BY id DESC LIMIT 1")).scalar_one()
    assert severity == "page"
    (opened,) = look(world, policy=BreakerPolicy(max_refused_share=Decimal("0.9"))).changed
    assert opened.phase == "open"


def test_its_own_refusals_never_hold_a_breaker_back(world: Engine) -> None:
    cap(world, "1000")
    arm(world)
    with world.begin() as connection:
        meter(connection)
        meter(connection, requests=50, status="refused")
    cap(world, str(spent(world)))
    assert [b.phase for b in look(world).changed] == ["open"]


def test_pausing_everything_lets_everything_pass_until_then(world: Engine) -> None:
    tripped(world)
    with world.begin() as connection:
        set_limit(connection, "service_tier:P2", "max_prompt_tokens", 4096, "enforce", "ann", NOW)
        pause_all(connection, "ann", "incident 12", NOW + 120 * MIN, NOW, POLICY)
    assert [e.shadow for e in told(world)] == [True, True]
    cap(world, "0.001", "tenant:acme/blue", NOW + MIN)
    assert [e.shadow for e in told(world, NOW + 120 * MIN)] == [False, False]


def test_a_pause_is_ended_early_and_only_once(world: Engine) -> None:
    tripped(world)
    with world.begin() as connection:
        pause_all(connection, "ann", "incident 12", NOW + 120 * MIN, NOW, POLICY)
        ended = pause_all(connection, "ann", "over", None, NOW + MIN, POLICY)
    assert {b.scope for b in ended} == {RED, "platform"}
    assert [e.shadow for e in told(world, NOW + MIN)] == [False]
    with world.begin() as connection, pytest.raises(Conflict, match="nothing is paused"):
        pause_all(connection, "ann", "over", None, NOW + MIN, POLICY)


def test_exemptions_travel_with_the_entries_they_can_meet_until_they_expire(world: Engine) -> None:
    tripped(world)
    with world.begin() as connection:
        for scope in ("tenant:acme/red/p1", "tenant:acme/blue", f"deployment:{D}"):
            add_exemption(connection, scope, "bob", "board demo", NOW + 30 * MIN, "ann", NOW)
    assert told(world)[0].exempt == (f"deployment:{D}", "tenant:acme/red/p1")
    assert told(world, NOW + 30 * MIN)[0].exempt == ()


def test_a_cap_increase_moves_the_threshold_while_it_lasts(world: Engine) -> None:
    cap(world, "1000")
    arm(world)
    with world.begin() as connection:
        meter(connection)
    amount = spent(world)
    cap(world, str(amount))
    with world.begin() as connection:
        increase_cap(connection, RED, "day", amount, "USD", NOW + 20 * MIN, "ann", "launch", NOW)
    assert look(world).changed == ()
    assert [b.phase for b in look(world, NOW + 20 * MIN).changed] == ["open"]


def test_a_removed_budget_leaves_its_open_breaker_to_a_person(world: Engine) -> None:
    tripped(world)
    with world.begin() as connection:
        remove_budget(connection, RED, "day", "ann", NOW)
    assert look(world, NOW + timedelta(days=2)).changed == ()
    assert phases(world) == {RED: "open"}
    with pytest.raises(Conflict, match="no cap any more"):
        reset(world, AllowanceRequest(new_cap=Decimal(5)))


def test_versions_grow_change_with_content_and_are_re_issued_before_they_expire(world: Engine) -> None:
    with world.begin() as connection:
        first = publish(connection, NOW)
        assert publish(connection, NOW + MIN) is None
        again = publish(connection, NOW + 5 * MIN)
        set_limit(connection, "service_tier:P2", "max_prompt_tokens", 4096, "warn", "ann", NOW)
        changed = publish(connection, NOW + 5 * MIN)
        stepped_back = publish(connection, NOW - timedelta(days=1))
        kept = connection.execute(text("SELECT count(*) FROM policy_version")).scalar_one()
    assert first is not None
    assert again is not None
    assert changed is not None
    assert stepped_back is None
    assert first.version < again.version < changed.version
    assert (first.digest == again.digest, again.expires_at) == (True, NOW + 20 * MIN)
    assert (changed.entries[0].limits, changed.entries[0].mode) == ({"max_prompt_tokens": 4096}, "warn")
    assert kept == 3


def test_re_issues_of_the_same_content_do_not_pile_up(world: Engine) -> None:
    with world.begin() as connection:
        for tick in range(10):
            assert publish(connection, NOW + tick * 5 * MIN) is not None
        assert connection.execute(text("SELECT count(*) FROM policy_version")).scalar_one() == 2


def test_everything_a_person_or_the_loop_did_is_in_the_trail_in_order(world: Engine) -> None:
    amount = tripped(world)
    reset(world, AllowanceRequest(new_cap=amount * 3))
    act(world, "shadow", "calm down")
    with world.connect() as connection:
        assert verify_chain(connection).intact
        trail = [(r.actor, r.action) for r in reversed(list_audit(connection))]
        epochs = [e.epoch for e in list_events(connection)]
    assert trail == [
        ("ann", "budget.set"), ("ann", "breaker.enforce"), ("ann", "budget.set"), ("control", "breaker.capsignal"),
        ("ann", "breaker.reset"), ("ann", "budget.allowance"), ("ann", "breaker.shadow"),
    ]  # fmt: skip
    assert epochs == [4, 3, 2, 1]


def test_a_state_with_every_part_survives_the_database(world: Engine) -> None:
    tripped(world)
    signed = act(world, "approve", "over by then")
    with world.connect() as connection:
        assert find_breaker(connection, RED) == signed
        assert find_breaker(connection, str(signed.id)) == signed
        with pytest.raises(NotFound, match="no breaker 'tenant:x'"):
            find_breaker(connection, "tenant:x")


def test_folding_an_unknown_breaker_is_named(db: Engine) -> None:
    signal = CapSignal((CapReading("day", NOW, None, money("1", "USD")),), True)
    with db.begin() as connection, pytest.raises(NotFound, match="no breaker 99"):
        breakers.fold(connection, 99, signal, NOW, POLICY)
