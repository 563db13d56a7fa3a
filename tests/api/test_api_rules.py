"""Rules and alerts over HTTP: both ways, faults by field, and a tenant's token sees its own alone."""

from __future__ import annotations

from typing import Any

import pytest
from api_client import NOW, Api, TokenMaker
from sqlalchemy import Engine

from control.rules import seed_rules
from models.rule_repo import Alert, add_alert

pytestmark = pytest.mark.db
RULE: dict[str, Any] = {"name": "mine", "metric": "kv_use", "detector": {"kind": "static", "fire": 0.9, "clear": 0.7}}


@pytest.fixture
def fired(db: Engine) -> None:
    with db.begin() as connection:
        for scope in ("tenant:acme/red", "tenant:other"):
            add_alert(
                connection,
                Alert(0, "mine", scope, 1, "warning", 0, True, NOW, NOW, None, 2.0, 1.0, None, "too much", None, ""),
            )


def test_rules_are_stored_and_read_as_they_were_given(db: Engine, api: Api, token: TokenMaker) -> None:
    admin = token("admin")
    assert api.post("/v1/rules", admin, {"rules": [RULE]}).json() == {"changed": ["mine"]}
    assert api.post("/v1/rules", admin, {"rules": [RULE]}).json() == {"changed": []}
    found = {row["name"]: row for row in api.get("/v1/rules", token("read")).json()["rules"]}
    assert found["mine"]["rule"]["detector"]["fire"] == 0.9
    assert found["mine"]["rule"]["shadow"] is True
    assert "kv-pressure" in found
    assert api.post("/v1/rules", admin, {"rules": [found["mine"]["rule"]]}).json() == {"changed": []}


@pytest.mark.parametrize(
    ("change", "field"), [({"metric": "gpu"}, "metric"), ({"detector": {"kind": "x"}}, "detector.kind"), ({"tier": 9}, "tier")]
)
def test_a_fault_names_its_field(api: Api, token: TokenMaker, change: dict[str, Any], field: str) -> None:
    answer = api.post("/v1/rules", token("operate"), {"rules": [{**RULE, **change}]})
    assert answer.status_code == 400
    assert (answer.json()["error"]["where"], answer.json()["error"]["field"]) == ("body.rules[0]", field)


def test_alerts_are_answered_with_a_reason(fired: None, api: Api, token: TokenMaker) -> None:
    operate = token("read", "operate", name="ann")
    listed = api.get("/v1/alerts", operate).json()["alerts"]
    assert [(row["scope"], row["at_risk"], row["recovered_at"]) for row in listed] == [
        ("tenant:other", None, None), ("tenant:acme/red", None, None)
    ]  # fmt: skip
    answered = api.post(f"/v1/alerts/{listed[0]['id']}/ignore", operate, {"reason": "a new product"}).json()
    assert (answered["person"], answered["person_said"], answered["person_reason"]) == ("ann", "ignored", "a new product")
    assert api.post("/v1/alerts/99/ack", operate, {"reason": "x"}).status_code == 404


def test_a_backtest_without_history_says_so(db: Engine, api: Api, token: TokenMaker) -> None:
    with db.begin() as connection:
        seed_rules(connection, NOW)
    found = api.get("/v1/rules/kv-pressure/backtest", token("read")).json()
    assert (found["firings"], found["offerable"], found["false_trips_per_week"]) == ([], False, "0")
    assert "nothing was known" in found["reason"]
    assert api.get("/v1/rules/nothing/backtest", token("read")).status_code == 404
