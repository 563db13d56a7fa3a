"""Months are closed and stated over HTTP."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from api_client import NOW, Api, Clock, TokenMaker
from api_world import settle
from sqlalchemy import Engine

pytestmark = pytest.mark.db
CLOSE = {"month": "2026-11", "reason": "invoice issued"}


@pytest.fixture
def in_december(db: Engine, api: Api, clock: Clock) -> Api:
    settle(db, NOW)
    clock.pass_time(timedelta(days=3))
    return api


def test_a_month_is_closed_once_by_a_token_that_may(in_december: Api, token: TokenMaker) -> None:
    api = in_december
    assert api.post("/v1/ledger/periods", token("read"), CLOSE).status_code == 403
    operator = token("operate", name="ann")
    blocked = api.post("/v1/ledger/periods", operator, CLOSE)
    assert (blocked.status_code, blocked.json()["error"]["hint"]) == (422, "to close it anyway, accept: open")
    tried = api.post("/v1/ledger/periods", operator, {**CLOSE, "dry_run": True}).json()
    assert (tried["closed_at"], tried["accept"], tried["waiting"] > 0) == (None, ["open"], True)
    closed = api.post("/v1/ledger/periods", operator, {**CLOSE, "accept": ["open"]})
    assert closed.status_code == 200
    assert api.post("/v1/ledger/periods", operator, {**CLOSE, "accept": ["open"]}).status_code == 422
    (period,) = api.get("/v1/ledger/periods", token("read")).json()["periods"]
    assert (period["month"], period["closed_by"], period["reason"], period["accepted"]) == (
        "2026-11",
        "ann",
        "invoice issued",
        ["open"],
    )
    assert period["money"] == closed.json()["money"]
    actions = [record["action"] for record in api.get("/v1/audit", token("read")).json()["records"]]
    assert "ledger.close_period" in actions


def test_a_statement_adds_up_and_says_what_it_is(in_december: Api, token: TokenMaker) -> None:
    found = in_december.get("/v1/ledger/statement", token("read"), month="2026-11", by="team").json()
    assert sum(Decimal(row["amount"]) for row in found["rows"]) == Decimal(found["totals"][-1]["amount"]) > 0
    assert {row["team"] for row in found["rows"]} == {"search", "ads", ""}
    assert (found["closed_at"], found["basis"], found["idle"]) == (None, "allocation", "apart")
    assert found["states"]["provisional"] > 0
    spread = in_december.get("/v1/ledger/statement", token("read"), month="2026-11", idle="spread", limit=1).json()
    assert (len(spread["rows"]), spread["totals"][-1]) == (1, found["totals"][-1])


def test_a_month_far_ahead_is_empty_and_asks_for_no_quarter_hour_of_it(in_december: Api, token: TokenMaker) -> None:
    found = in_december.get("/v1/ledger/statement", token("read"), month="2111-02").json()
    assert (found["rows"], found["waiting"]) == ([], 0)


def test_an_empty_month_has_no_rows(api: Api, token: TokenMaker) -> None:
    found = api.get("/v1/ledger/statement", token("read"), month="2026-01").json()
    assert (found["rows"], found["totals"], found["not_shared"]) == ([], [], [])


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"month": "July"}, "month"),
        ({"by": "colour"}, "by"),
        ({"by": "kind"}, "by"),
        ({"as_of": "now"}, "as_of"),
        ({"idle": "x"}, "idle"),
    ],
)
def test_a_wrong_question_names_the_parameter(api: Api, token: TokenMaker, changed: dict[str, str], field: str) -> None:
    answer = api.get("/v1/ledger/statement", token("read"), **{"month": "2026-11", **changed})
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_a_tenants_token_is_refused(api: Api, token: TokenMaker) -> None:
    mine = token("operate", tenant="acme")
    assert api.get("/v1/ledger/statement", token("read", tenant="acme"), month="2026-11").status_code == 403
    assert api.get("/v1/ledger/periods", token("read", tenant="acme")).status_code == 403
    assert api.post("/v1/ledger/periods", mine, CLOSE).status_code == 403
