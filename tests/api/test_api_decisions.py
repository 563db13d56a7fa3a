"""Changes over HTTP: budgets, limits, exemptions, breakers. Audited under the token's name; sent twice they change once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from api_client import NOW, Api, Clock, TokenMaker
from api_world import D, settle
from sqlalchemy import Engine

from control.budget_standing import keep_standings
from core.breaker_values import Trip
from core.money import money
from models.breaker_repo import lock_breaker, save_breaker

pytestmark = pytest.mark.db
BUDGET = {"scope": "tenant:acme/search", "period": "day", "amount": "100", "cap": "120", "cost_basis": "usage"}
LIMIT = {"scope": "tenant:acme/search", "name": "max_prompt_tokens", "value": 8000, "mode": "enforce"}
EXEMPTION = {
    "scope": "tenant:acme/search", "owner": "ann", "reason": "launch week", "expires_at": "2026-12-07T00:00:00Z",
}  # fmt: skip
INCREASE = {
    "scope": "tenant:acme/search", "period": "day", "extra": "30", "approver": "cfo", "reason": "quarter end",
    "expires_at": "2026-12-01T00:00:00Z",
}  # fmt: skip


@pytest.fixture
def operate(token: TokenMaker) -> str:
    return token("operate", "read", name="ann's laptop")


def actions(api: Api, text: str) -> list[tuple[str, str]]:
    records = api.get("/v1/audit", text).json()["records"]
    return [(record["action"], record["actor"]) for record in reversed(records)]


def test_a_budget_is_set_once_and_shown_with_its_spend(db: Engine, api: Api, operate: str) -> None:
    settle(db, NOW)
    first, again = (api.post("/v1/budgets", operate, BUDGET).json() for _ in range(2))
    assert (first["changed"], again["changed"]) == (True, False)
    assert first["id"] == again["id"]
    shown = api.get("/v1/budgets", operate).json()["budgets"][0]
    assert (shown["amount"], shown["cap"], shown["currency"], shown["period"]) == ("100", "120", "USD", "day")
    assert float(shown["spend"]["amount"]) > 0
    assert 0 < float(shown["spent_share"]) < 1
    assert shown["expected_share"] == "0.505208"
    assert actions(api, operate) == [("budget.set", "ann's laptop")]


def test_budgets_on_pages_are_those_the_control_loop_measured_and_live_measures_now(
    db: Engine, api: Api, operate: str, clock: Clock
) -> None:
    settle(db, NOW)
    api.post("/v1/budgets", operate, BUDGET)
    unkept = api.get("/v1/budgets", operate).json()
    keep_standings(db, NOW, every_s=5.0)
    clock.pass_time(timedelta(seconds=3))
    kept, live = (api.get("/v1/budgets", operate, **more).json() for more in ({}, {"live": "true"}))
    assert [(a["as_of"], a["budgets"][0]["live"]) for a in (unkept, kept, live)] == [
        ("2026-11-30T12:07:30Z", True),
        ("2026-11-30T12:07:30Z", False),
        ("2026-11-30T12:07:33Z", True),
    ]
    assert kept["budgets"] == [{**row, "live": False} for row in unkept["budgets"]]
    assert api.get("/v1/overview", operate).json()["budgets"] == kept["budgets"]
    assert api.get("/v1/overview", operate, live="true").json()["budgets"] == live["budgets"]
    clock.pass_time(timedelta(seconds=8))
    assert api.get("/v1/budgets", operate).json()["budgets"][0]["live"] is True


def test_a_budget_for_a_scope_never_seen_is_taken_with_a_warning(api: Api, operate: str) -> None:
    answer = api.post("/v1/budgets", operate, BUDGET)
    assert answer.status_code == 200
    assert "check its spelling" in answer.json()["warnings"][0]


def test_limits_exemptions_and_increases_change_once_when_sent_twice(api: Api, operate: str) -> None:
    api.post("/v1/budgets", operate, BUDGET)
    for path, body in (("/v1/limits", LIMIT), ("/v1/exemptions", EXEMPTION), ("/v1/budgets/increase", INCREASE)):
        first, again = (api.post(path, operate, body).json() for _ in range(2))
        assert (first["changed"], again["changed"]) == (True, False), path
        assert first["id"] == again["id"]
    assert [one["value"] for one in api.get("/v1/limits", operate).json()["limits"]] == [8000]
    assert [one["owner"] for one in api.get("/v1/exemptions", operate).json()["exemptions"]] == ["ann"]
    assert api.get("/v1/budgets", operate).json()["budgets"][0]["effective_cap"] == "150"
    names = [action for action, _ in actions(api, operate)]
    assert names == ["budget.set", "limit.set", "exemption.add", "budget.increase_cap"]


BAD_CHANGES = [
    ("/v1/budgets", {**BUDGET, "amount": "-5"}, 400, "amount"),
    ("/v1/budgets", {**BUDGET, "amount": "0"}, 400, "amount"),
    ("/v1/budgets", {**BUDGET, "amount": 5.5}, 400, "amount"),
    ("/v1/budgets", {**BUDGET, "scope": "tenant:/search"}, 400, "scope"),
    ("/v1/budgets", {**BUDGET, "scope": "everybody"}, 400, "scope"),
    ("/v1/budgets", {**BUDGET, "period": "decade"}, 400, "period"),
    ("/v1/budgets", {**BUDGET, "zone": "Mars/Olympus"}, 400, "zone"),
    ("/v1/budgets", {**BUDGET, "colour": "red"}, 400, "colour"),
    ("/v1/limits", {**LIMIT, "name": "max_fun"}, 400, "name"),
    ("/v1/limits", {**LIMIT, "value": 0}, 400, "value"),
    ("/v1/exemptions", {**EXEMPTION, "expires_at": "2026-11-30T12:00:00Z"}, 400, "expires_at"),
    ("/v1/exemptions", {**EXEMPTION, "expires_at": "2026-12-07T00:00:00"}, 400, "expires_at"),
    ("/v1/exemptions", {**EXEMPTION, "reason": " "}, 400, "reason"),
    ("/v1/budgets/increase", INCREASE, 404, None),
]


@pytest.mark.parametrize(("path", "body", "status", "field"), BAD_CHANGES)
def test_a_bad_change_names_the_field_and_changes_nothing(
    api: Api, operate: str, path: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    answer = api.post(path, operate, body)
    assert (answer.status_code, answer.json()["error"].get("field")) == (status, field)
    assert actions(api, operate) == []


def test_a_tenants_operator_changes_its_own_only(api: Api, token: TokenMaker, operate: str) -> None:
    mine = token("operate", "read", tenant="acme/search")
    assert api.post("/v1/limits", mine, LIMIT).status_code == 200
    for path, body in (("/v1/limits", LIMIT), ("/v1/budgets", BUDGET), ("/v1/exemptions", EXEMPTION)):
        for scope in ("tenant:acme", "tenant:acme/ads", f"deployment:{D}", "service_tier:P2", "platform"):
            assert api.post(path, mine, {**body, "scope": scope}).status_code in (400, 403), (path, scope)
    assert api.post("/v1/breakers/pause", mine, {"reason": "x", "until": "2026-12-01T00:00:00Z"}).status_code == 403
    api.post("/v1/limits", operate, {**LIMIT, "scope": "tenant:acme/ads"})
    assert [one["scope"] for one in api.get("/v1/limits", mine).json()["limits"]] == ["tenant:acme/search"]


def open_breaker(db: Engine, breaker_id: int) -> None:
    """The state in which tier 3 leaves a breaker."""
    trip = Trip("day", NOW.replace(hour=0, minute=0, second=0) + timedelta(days=1), money("115", "USD"), money("120", "USD"))
    with db.begin() as connection:
        breaker = lock_breaker(connection, breaker_id)
        assert breaker is not None
        save_breaker(connection, replace(breaker, phase="open", epoch=breaker.epoch + 1, trip=trip, reason="95 % of the cap"))


def the_breaker(api: Api, text: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/v1/breakers", text).json()["breakers"][0]
    return found


def test_arming_needs_a_reason_and_the_shadow_report(api: Api, operate: str) -> None:
    api.post("/v1/budgets", operate, BUDGET)
    breaker = the_breaker(api, operate)
    assert (breaker["phase"], breaker["enforced"], breaker["refusing"]) == ("closed", False, False)
    path = f"/v1/breakers/{breaker['id']}/enforce"
    assert api.post(path, operate, {}).status_code == 400
    assert api.post(path, operate, {"reason": "cap agreed"}).status_code == 422
    answer = api.post(path, operate, {"reason": "cap agreed", "shadow_report_read": True})
    assert (answer.status_code, answer.json()["enforced"]) == (200, True)
    event = api.get(f"/v1/breakers/{breaker['id']}/events", operate).json()["events"][0]
    assert (event["actor"], event["reason"]) == ("ann's laptop", "cap agreed")
    assert api.post(f"/v1/breakers/{breaker['id']}/shadow", operate, {"reason": "too early"}).json()["enforced"] is False


def test_only_a_reset_with_reason_and_allowance_re_closes(db: Engine, api: Api, operate: str) -> None:
    settle(db, NOW)
    api.post("/v1/budgets", operate, BUDGET)
    breaker_id = the_breaker(api, operate)["id"]
    open_breaker(db, breaker_id)
    path = f"/v1/breakers/{breaker_id}/reset"
    refused = api.post(path, operate, {"reason": "please"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "refused")
    assert api.post(path, operate, {"allowance": {"new_cap": "200"}}).status_code == 400
    assert api.post(path, operate, {"reason": "ok", "allowance": {"extra": "50"}}).status_code == 400
    assert api.post(path, operate, {"reason": "ok", "allowance": {"new_cap": "200", "currency": "EUR"}}).status_code == 400
    assert the_breaker(api, operate)["phase"] == "open"
    answer = api.post(path, operate, {"reason": "agreed with finance", "allowance": {"new_cap": "200"}})
    assert (answer.status_code, answer.json()["phase"]) == (200, "closed")
    assert api.get("/v1/budgets", operate).json()["budgets"][0]["cap"] == "200"
    assert api.get("/v1/audit/verify", operate).json()["intact"] is True


def test_a_pause_covers_everything_until_its_end(api: Api, operate: str, clock: Clock) -> None:
    api.post("/v1/budgets", operate, BUDGET)
    until = (NOW + timedelta(hours=2)).isoformat()
    answer = api.post("/v1/breakers/pause", operate, {"reason": "incident 7", "until": until})
    assert answer.json()["changed"] == 2
    assert all(b["paused_until"] for b in api.get("/v1/breakers", operate).json()["breakers"])
    clock.pass_time(timedelta(hours=3))
    assert not any(b["paused_until"] for b in api.get("/v1/breakers", operate).json()["breakers"])
    past = api.post("/v1/breakers/pause", operate, {"reason": "late", "until": until})
    assert (past.status_code, past.json()["error"]["field"]) == (400, "until")


def test_an_unknown_breaker_is_404(api: Api, operate: str) -> None:
    assert api.get("/v1/breakers/99/events", operate).status_code == 404
    for action in ("approve", "reset", "enforce", "shadow"):
        assert api.post(f"/v1/breakers/99/{action}", operate, {"reason": "x"}).status_code == 404
