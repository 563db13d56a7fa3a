"""Incidents over HTTP: the list, the story, acts of people under their token's name, tenants apart."""

from __future__ import annotations

import pytest
from api_client import NOW, Api, TokenMaker
from sqlalchemy import Engine

from control import incidents
from core.incident import Change
from core.money import money

pytestmark = pytest.mark.db
CHANGE = Change("tenant:acme/red", "rule:x", True, "warning", "ALERT", NOW, "control", "dear", at_risk=money("12.5", "USD"))


@pytest.fixture
def incident(db: Engine) -> int:
    with db.begin() as connection:
        made = incidents.note(connection, CHANGE)
    assert made is not None
    return made.id


def test_the_list_and_the_story(api: Api, token: TokenMaker, incident: int) -> None:
    reader = token("read")
    (row,) = api.get("/v1/incidents", reader, open="true").json()["incidents"]
    assert (row["id"], row["at_risk"]) == (incident, {"amount": "12.5", "currency": "USD"})
    assert api.get("/v1/incidents", reader, open="false").json() == {"incidents": []}
    told = api.get(f"/v1/incidents/{incident}", reader).json()
    assert [m["kind"] for m in told["moments"]] == ["opened"]
    assert (told["incident"]["overshoot"], told["incident"]["overshoot_reason"]) == (None, "no cap was reached")


def test_people_act_under_their_tokens_name(api: Api, token: TokenMaker, incident: int) -> None:
    ann = token("operate", "read", name="ann")
    base = f"/v1/incidents/{incident}"
    assert api.post(f"{base}/acknowledge", ann, {"reason": "on it"}).json()["acknowledged_by"] == "ann"
    assert api.post(f"{base}/acknowledge", ann, {"reason": "on it"}).status_code == 409
    assert api.post(f"{base}/assign", ann, {"assignee": "bob", "reason": "his"}).json()["assignee"] == "bob"
    assert api.post(f"{base}/comment", ann, {"reason": "see run 7"}).status_code == 200
    assert api.get(base, ann).json()["people"] == ["ann"]
    assert api.post("/v1/incidents/99/comment", ann, {"reason": "x"}).status_code == 404
    assert api.post(f"{base}/comment", token("read"), {"reason": "x"}).status_code == 403


def test_a_tenant_sees_its_own(api: Api, token: TokenMaker, incident: int) -> None:
    red, blue = (token("operate", "read", tenant=f"acme/{team}") for team in ("red", "blue"))
    assert len(api.get("/v1/incidents", red).json()["incidents"]) == 1
    assert api.get("/v1/incidents", blue).json() == {"incidents": []}
    assert api.get(f"/v1/incidents/{incident}", blue).status_code == 403
    assert api.post(f"/v1/incidents/{incident}/comment", blue, {"reason": "x"}).status_code == 403
