"""Channels in the database: routes choose, each moment goes out once with its decision, secrets stay references."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from decide_world import NOW
from sqlalchemy import Engine, text

from control import channels as control
from control import incidents
from control.outbox import drain
from core.errors import BadInput, NotFound
from core.incident import Change
from core.ports import Delivery, Effect
from core.routing import route_of
from models.channel_repo import Channel, begin_ticket, list_channels, list_tickets, save_ticket, tickets_to_sync

pytestmark = pytest.mark.db
JIRA = Channel(
    "ops", "jira", {"url": "https://acme.atlassian.net", "project": "OPS", "email": "b@acme.example"},
    {"token": "env:JIRA_T"}, "en",
    (route_of("tenant:acme", "warning", ""),),
)  # fmt: skip
ALERT = Change("tenant:acme/red", "rule:x", True, "warning", "ALERT", NOW, "control", "dear", owner="finops")


def add(db: Engine, *channels: Channel) -> None:
    with db.begin() as connection:
        for channel in channels:
            control.add_channel(connection, channel, "ann", NOW)


def kinds(db: Engine) -> list[str]:
    with db.connect() as connection:
        return list(connection.execute(text("SELECT kind FROM outbox ORDER BY id")).scalars())


@pytest.mark.parametrize(
    ("route", "taken"),
    [
        (("platform", "notice", ""), True), (("tenant:acme", "warning", ""), True), (("tenant:acme/red", "page", ""), False),
        (("tenant:acme/blue", "notice", ""), False), (("platform", "notice", "finops"), True),
        (("platform", "notice", "x"), False),
    ],
)  # fmt: skip
def test_routes_choose_by_scope_severity_and_owner(db: Engine, route: tuple[str, str, str], taken: bool) -> None:
    add(db, replace(JIRA, routes=(route_of(*route),)))
    with db.begin() as connection:
        incidents.note(connection, ALERT)
    assert kinds(db) == (["channel:ops"] if taken else [])


def test_each_moment_goes_out_once_in_order(db: Engine) -> None:
    add(db, JIRA)
    with db.begin() as connection:
        incidents.note(connection, ALERT)
        incidents.note(connection, ALERT)
        incidents.note(connection, replace(ALERT, firing=False, reason="calm"))
    sent: list[Effect] = []

    class Ops:
        def deliver(self, effect: Effect) -> Delivery:
            sent.append(effect)
            return Delivery("delivered")

    drain(db, {"channel:ops": Ops()}, NOW + timedelta(minutes=1))
    assert [(e.key.split(":")[2:], e.payload["event"]) for e in sent] == [(["1", "ops"], "opened"), (["2", "ops"], "recovered")]


def test_a_rolled_back_decision_tells_nobody(db: Engine) -> None:
    add(db, JIRA)
    connection = db.connect()
    incidents.note(connection, ALERT)
    connection.rollback()
    connection.close()
    assert kinds(db) == []


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kind": "pigeon"}, "kind"), ({"secrets": {}}, "secret"), ({"secrets": {"token": "hunter2"}}, "secret token"),
    ({"config": {"url": "https://x"}}, "config"), ({"config": {**JIRA.config, "colour": "red"}}, "config"),
    ({"name": "Ops!"}, "name"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field"), BAD)
def test_a_bad_channel_is_named_and_a_secret_never_repeated(db: Engine, change: dict[str, Any], field: str) -> None:
    with db.begin() as connection, pytest.raises(BadInput) as told:
        control.add_channel(connection, replace(JIRA, **change), "ann", NOW)
    assert told.value.field == field
    assert "hunter2" not in str(told.value)


def test_a_channel_is_put_in_place_of_the_one_of_its_name_and_removed(db: Engine) -> None:
    add(db, JIRA, replace(JIRA, language="zh"))
    with db.begin() as connection:
        assert list_channels(connection) == [replace(JIRA, language="zh")]
        control.remove_channel(connection, "ops", "ann", NOW)
        with pytest.raises(NotFound):
            control.remove_channel(connection, "ops", "ann", NOW)


def test_tickets_are_begun_once_and_read_back_while_open(db: Engine) -> None:
    with db.begin() as connection:
        made = incidents.note(connection, ALERT)
        assert made is not None
        ticket, is_new = begin_ticket(connection, made.id, "ops", NOW)
        assert (is_new, begin_ticket(connection, made.id, "ops", NOW)) == (True, (ticket, False))
        assert list_tickets(connection, made.id) == []
        save_ticket(connection, replace(ticket, external_id="OPS-1", status="To Do"), NOW)
        assert [t.external_id for t in tickets_to_sync(connection, "ops", NOW)] == ["OPS-1"]
        incidents.note(connection, replace(ALERT, firing=False))
        assert tickets_to_sync(connection, "ops", NOW) == []
        assert [t.status for t in list_tickets(connection, made.id)] == ["To Do"]


def test_a_missing_secret_is_named_and_tried_again(db: Engine) -> None:
    add(db, JIRA)

    def clock() -> datetime:
        return NOW

    _, delivery = control.send_test(db, "ops", "ann", clock, {})
    assert (delivery.outcome, delivery.detail) == ("retry", "the secret token is empty")
