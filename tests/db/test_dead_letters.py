"""What was given up is seen with its error, and goes out again under its key when a named person says so."""

from __future__ import annotations

import pytest
from decide_world import MIN, NOW
from sqlalchemy import Engine

from control.dead_letters import resend
from control.outbox import drain
from core.errors import BadInput, NotFound
from core.ports import Delivery, Effect
from models.audit_repo import list_audit
from models.outbox_repo import enqueue, list_effects

pytestmark = pytest.mark.db


class Channel:
    def __init__(self, answer: Delivery) -> None:
        self.answer, self.keys = answer, list[str]()

    def deliver(self, effect: Effect) -> Delivery:
        self.keys.append(effect.key)
        return self.answer


def test_a_dead_letter_is_listed_and_sent_again_with_its_key(db: Engine) -> None:
    with db.begin() as connection:
        enqueue(connection, Effect("incident:1:1:ops", "channel:ops", {"x": "y"}), NOW)
    drain(db, {"channel:ops": Channel(Delivery("failed", "HTTP 401"))}, NOW)
    with db.begin() as connection:
        (row,) = list_effects(connection, "failed")
        assert (row["key"], row["last_error"], "payload" in row) == ("incident:1:1:ops", "HTTP 401", False)
        resend(connection, row["id"], "ann", "token renewed", NOW + MIN)
        assert [r.action for r in list_audit(connection)] == ["outbox.resend"]
        with pytest.raises(NotFound):
            resend(connection, row["id"], "ann", "again", NOW)
        with pytest.raises(BadInput, match="reason"):
            resend(connection, row["id"], "ann", " ", NOW)
    again = Channel(Delivery("delivered"))
    assert drain(db, {"channel:ops": again}, NOW + MIN).delivered == 1
    assert again.keys == ["incident:1:1:ops"]
    with db.begin() as connection:
        assert [r["state"] for r in list_effects(connection)] == ["done"]


def test_one_given_up_for_want_of_a_channel_is_not_given_up_at_once_again(db: Engine) -> None:
    with db.begin() as connection:
        enqueue(connection, Effect("a", "channel:ops"), NOW)
    drain(db, {}, NOW + 60 * 25 * MIN)
    with db.begin() as connection:
        (row,) = list_effects(connection, "failed")
        resend(connection, row["id"], "ann", "channel added", NOW + 60 * 25 * MIN)
    assert drain(db, {}, NOW + 60 * 26 * MIN).failed == 0
