"""The running loop: a loader's commit becomes a published refusal; it survives restarts, a lost database and a second runner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from decide_world import POLICY, cap, meter, phases, price_and_node
from sqlalchemy import Engine, text

from control import breakers
from control.budget_standing import kept_standings
from control.budget_watch import read_spend
from control.budgets import set_limit
from control.loop import ControlSettings, run
from models.breaker_repo import list_events
from models.decide_repo import list_budgets, notify
from models.outbox_repo import list_heartbeats
from models.policy_repo import latest_policy

pytestmark = pytest.mark.db
RED = "tenant:acme/red"


def now() -> datetime:
    return datetime.now(UTC)


def wait_for(what: Callable[[], Any]) -> Any:
    """The first true answer; fails the test after half a minute."""
    for _ in range(600):
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come to pass")


@contextmanager
def running(url: str, **more: Any) -> Iterator[threading.Event]:
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(ControlSettings(url, **more), stop))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def entries(db: Engine) -> list[tuple[str, str, bool]]:
    with db.connect() as connection:
        found = latest_policy(connection)
    return [] if found is None else [(e.scope, e.action, e.shadow) for e in found.entries]


def published(db: Engine) -> bool:
    with db.connect() as connection:
        return latest_policy(connection) is not None


def armed_at_the_brink(db: Engine) -> None:
    """Red's breaker is armed and its cap such that one more request crosses it."""
    price_and_node(db, now())
    cap(db, "1000", now=now())
    with db.begin() as connection:
        breakers.enforce(
            connection, breakers.find_breaker(connection, RED).id, "ann", "go", now(), POLICY, read_shadow_report=True
        )
        meter(connection, now())
        spent = read_spend(connection, list_budgets(connection)[0].budget, now()).spend
    assert spent is not None
    cap(db, str(spent.amount * 2), now=now())


def load_one_request(db: Engine) -> None:
    with db.begin() as connection:
        meter(connection, now())
        notify(connection, "tokenfuse_loaded", "usage")


def test_a_loaders_commit_becomes_a_published_refusal(db: Engine, db_url: str) -> None:
    armed_at_the_brink(db)
    with running(db_url, tick_s=5.0):
        wait_for(lambda: published(db))
        assert entries(db) == []
        load_one_request(db)
        assert wait_for(lambda: entries(db)) == [(RED, "reject", False)]


def test_a_changed_setting_is_published_too(db: Engine, db_url: str) -> None:
    with running(db_url, tick_s=5.0):
        wait_for(lambda: published(db))
        with db.begin() as connection:
            set_limit(connection, "service_tier:P2", "max_prompt_tokens", 4096, "enforce", "ann", now())
        assert wait_for(lambda: entries(db)) == [("service_tier:P2", "limit", False)]


def test_what_was_missed_while_it_was_down_is_caught_up_once(db: Engine, db_url: str) -> None:
    armed_at_the_brink(db)
    load_one_request(db)
    for _ in range(3):
        with running(db_url):
            wait_for(lambda: entries(db))
    with db.connect() as connection:
        opened = [e for e in list_events(connection) if (e.from_phase, e.to_phase) == ("closed", "open")]
    assert len(opened) == 1


def test_a_second_runner_stands_by_and_takes_over(db: Engine, db_url: str) -> None:
    armed_at_the_brink(db)
    with running(db_url, tick_s=0.2) as second:
        wait_for(lambda: published(db))
        with running(db_url, tick_s=0.2):
            second.set()
            load_one_request(db)
            wait_for(lambda: phases(db)[RED] == "open")


def test_it_comes_back_after_its_sessions_are_killed(db: Engine, db_url: str) -> None:
    armed_at_the_brink(db)
    with running(db_url, tick_s=0.2):
        wait_for(lambda: published(db))
        with db.begin() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name = 'tokenfuse-control'"
                )
            )
        load_one_request(db)
        wait_for(lambda: phases(db)[RED] == "open")
        wait_for(lambda: entries(db))


def test_it_keeps_how_budgets_stand(db: Engine, db_url: str) -> None:
    price_and_node(db, now())
    cap(db, "100", now=now())
    with db.begin() as connection:
        meter(connection, now())
    with running(db_url, budgets_every_s=0.1):

        def kept() -> Any:
            with db.connect() as connection:
                return kept_standings(connection, list_budgets(connection), now())

        (standing,) = wait_for(kept).values()
    assert standing.live is False
    assert standing.spend is not None
    assert standing.spend.amount > 0


def test_it_leaves_a_heartbeat(db: Engine, db_url: str) -> None:
    with running(db_url):

        def beat() -> Any:
            with db.connect() as connection:
                return list_heartbeats(connection).get("control")

        _, detail = wait_for(beat)
    assert (detail["ok"], detail["scopes"]) == (True, 0)
