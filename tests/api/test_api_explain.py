"""Why a cost changed, over HTTP."""

from __future__ import annotations

from decimal import Decimal

import pytest
from api_client import Api, TokenMaker
from explain_world import generate
from sqlalchemy import Engine

pytestmark = pytest.mark.db
PERIODS = {"from": "2026-05-02..2026-06-01", "to": "2026-06"}


def test_causes_add_up_and_movers_are_most_moved_first(db: Engine, api: Api, token: TokenMaker) -> None:
    generate(db)
    answer = api.get("/v1/explain", token("read"), by="model", **PERIODS).json()
    (total,) = answer["totals"]
    assert (total["before"], total["after"], total["change_percent"], total["difference"]) == ("200", "280", "40", "0")
    assert sum(Decimal(row["amount"]) for row in total["effects"]) == Decimal(total["change"]) == 80
    assert [row["model"] for row in answer["rows"]][:1] == ["docs"]
    assert answer["bill_only"] == {"amount": None, "reason": "no bill imported"}
    assert answer["meta"]["basis"] == "allocation"


def test_an_empty_ledger_has_no_totals(api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/explain", token("read"), **PERIODS)
    assert (answer.status_code, answer.json()["totals"], answer.json()["rows"]) == (200, [], [])


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"from": "June"}, "from"),
        ({"to": "2026-06-02..2026-06-01"}, "to"),
        ({"to": "1026-06"}, "to"),
        ({"from": "2026-01-01T00:00:00..2026-02-01"}, "from"),
        ({"by": "colour"}, "by"),
    ],
)
def test_a_wrong_question_names_the_parameter(api: Api, token: TokenMaker, changed: dict[str, str], field: str) -> None:
    answer = api.get("/v1/explain", token("read"), **{**PERIODS, **changed})
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_a_tenants_token_is_refused(api: Api, token: TokenMaker) -> None:
    assert api.get("/v1/explain", token("read", tenant="acme"), **PERIODS).status_code == 403
