"""The outbox over HTTP: dead letters with their errors, sent again under the token's name; not for a tenant's token."""

from __future__ import annotations

import pytest
from api_client import NOW, Api, TokenMaker
from sqlalchemy import Engine

from control.outbox import drain
from core.ports import Delivery, Effect
from models.outbox_repo import enqueue

pytestmark = pytest.mark.db


class Refusing:
    def deliver(self, effect: Effect) -> Delivery:
        return Delivery("failed", "HTTP 404")


def test_dead_letters_are_seen_and_sent_again(db: Engine, api: Api, token: TokenMaker) -> None:
    with db.begin() as connection:
        enqueue(connection, Effect("incident:1:1:ops", "channel:ops"), NOW)
    drain(db, {"channel:ops": Refusing()}, NOW)
    ann, tenant = token("operate", "read", name="ann"), token("operate", "read", tenant="acme")
    (row,) = api.get("/v1/outbox", ann, state="failed").json()["effects"]
    assert row["last_error"] == "HTTP 404"
    path = f"/v1/outbox/{row['id']}/resend"
    assert api.post(path, tenant, {"reason": "x"}).status_code == 403
    assert api.get("/v1/outbox", tenant).status_code == 403
    assert api.post(path, ann, {"reason": "channel mended"}).json()["key"] == "incident:1:1:ops"
    assert api.post(path, ann, {"reason": "again"}).status_code == 404
    assert api.get("/v1/outbox", ann, state="pending").json()["effects"][0]["attempts"] == 0
