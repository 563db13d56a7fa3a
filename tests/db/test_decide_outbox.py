"""The outbox: an effect is written with its decision, delivered in order, put off on trouble, given up by name, acted on once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest
from decide_world import MIN, NOW
from sqlalchemy import Engine, text

from control.outbox import FIRST_RETRY_S, LONGEST_RETRY_S, MAX_ATTEMPTS, DrainReport, backoff_s, drain
from core.ports import Delivery, Effect
from models.outbox_repo import beat, enqueue, list_heartbeats, outbox_counts

pytestmark = pytest.mark.db


class Channel:
    """A channel that remembers what it carried and answers from a script (its last answer for good)."""

    def __init__(self, *answers: Delivery) -> None:
        self.answers, self.keys, self.lock = list(answers or (Delivery("delivered"),)), list[str](), threading.Lock()

    def deliver(self, effect: Effect) -> Delivery:
        with self.lock:
            self.keys.append(effect.key)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Broken(Channel):
    def deliver(self, effect: Effect) -> Delivery:
        raise RuntimeError(f"secret-token-123 {effect.key}")


def put(db: Engine, keys: Sequence[str], kind: str = "notify", payload: Mapping[str, str] | None = None) -> None:
    with db.begin() as connection:
        for key in keys:
            enqueue(connection, Effect(key, kind, payload or {"text": "x"}), NOW)


def rows(db: Engine) -> list[tuple[str, str, int, str]]:
    with db.connect() as connection:
        found = connection.execute(text("SELECT key, state, attempts, last_error FROM outbox ORDER BY id"))
        return [tuple(row) for row in found]


def test_effects_are_delivered_in_order_and_once(db: Engine) -> None:
    channel = Channel()
    put(db, ["a", "b"])
    put(db, ["a"])
    assert drain(db, {"notify": channel}, NOW) == DrainReport(delivered=2)
    assert drain(db, {"notify": channel}, NOW + MIN) == DrainReport()
    assert channel.keys == ["a", "b"]
    assert rows(db) == [("a", "done", 1, ""), ("b", "done", 1, "")]


def test_an_effect_whose_decision_was_rolled_back_is_never_delivered(db: Engine) -> None:
    connection = db.connect()
    enqueue(connection, Effect("a", "notify"), NOW)
    connection.rollback()
    connection.close()
    assert drain(db, {"notify": Channel()}, NOW) == DrainReport()


def test_trouble_is_tried_again_with_the_same_key_after_a_growing_wait(db: Engine) -> None:
    channel = Channel(Delivery("retry", "HTTP 503"), Delivery("retry", "HTTP 503", 600), Delivery("delivered"))
    put(db, ["a"])
    assert drain(db, {"notify": channel}, NOW).retried == 1
    assert drain(db, {"notify": channel}, NOW + timedelta(seconds=FIRST_RETRY_S - 1)) == DrainReport()
    assert drain(db, {"notify": channel}, NOW + MIN).retried == 1
    assert drain(db, {"notify": channel}, NOW + 10 * MIN) == DrainReport(), "the receiver asked for 600 s"
    assert drain(db, {"notify": channel}, NOW + 12 * MIN).delivered == 1
    assert (channel.keys, rows(db)) == (["a", "a", "a"], [("a", "done", 3, "")])


def test_a_refused_effect_fails_and_does_not_stop_the_next(db: Engine) -> None:
    put(db, ["a", "b"])
    report = drain(db, {"notify": Channel(Delivery("failed", "HTTP 410"), Delivery("delivered"))}, NOW)
    assert report == DrainReport(delivered=1, failed=1)
    assert rows(db)[0] == ("a", "failed", 1, "HTTP 410")


def test_it_gives_up_after_so_many_attempts(db: Engine) -> None:
    put(db, ["a"])
    for n in range(MAX_ATTEMPTS):
        drain(db, {"notify": Channel(Delivery("retry", "down"))}, NOW + n * timedelta(hours=2))
    assert rows(db) == [("a", "failed", MAX_ATTEMPTS, "down")]


def test_a_broken_channel_is_tried_again_and_its_words_are_not_kept(db: Engine) -> None:
    put(db, ["a"])
    assert drain(db, {"notify": Broken()}, NOW).retried == 1
    assert rows(db) == [("a", "pending", 1, "the channel failed (RuntimeError)")]


def test_a_kind_without_channel_waits_a_day_for_one_and_is_then_given_up_by_name(db: Engine) -> None:
    put(db, ["a"])
    put(db, ["b"], kind="freeze_scale_out")
    assert drain(db, {}, NOW + timedelta(hours=23)) == DrainReport()
    assert drain(db, {"notify": Channel()}, NOW + timedelta(hours=23)).delivered == 1
    assert drain(db, {"notify": Channel()}, NOW + timedelta(hours=25)).failed == 1
    assert rows(db)[1] == ("b", "failed", 0, "no channel for freeze_scale_out is configured")
    with db.connect() as connection:
        assert outbox_counts(connection) == {"done": 1, "failed": 1}


def test_several_drainers_share_the_work_and_nothing_goes_out_twice(db: Engine) -> None:
    channel, keys = Channel(), [f"k{n}" for n in range(40)]
    put(db, keys)
    threads = [threading.Thread(target=drain, args=(db, {"notify": channel}, NOW)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(channel.keys) == sorted(keys)


def test_waits_double_up_to_an_hour_and_are_spread_over_the_keys() -> None:
    waits = [backoff_s("a", attempt) for attempt in range(1, 21)]
    assert FIRST_RETRY_S <= waits[0] <= FIRST_RETRY_S * 5 // 4
    assert waits[-1] <= LONGEST_RETRY_S * 5 // 4
    assert all(wait >= LONGEST_RETRY_S for wait in waits[10:])
    assert len({backoff_s(f"k{n}", 9) for n in range(50)}) > 20


def test_heartbeats_keep_the_last_sign_of_life(db: Engine) -> None:
    with db.begin() as connection:
        beat(connection, "control", NOW, {"ok": True})
        beat(connection, "control", NOW + MIN, {"ok": False})
        assert list_heartbeats(connection) == {"control": (NOW + MIN, {"ok": False})}
