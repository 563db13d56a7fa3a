"""The newest round of fleet checks over HTTP, and how the table keeps it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from api_client import NOW, Api, TokenMaker
from sqlalchemy import Engine

from core.fleet_checks import CHECKS, Finding
from models.fleet_repo import read_findings, replace_findings

pytestmark = pytest.mark.db
ENGINE, PROXY = "http://vllm-0:8000/metrics", "http://litellm:4000"
EAGER = Finding(ENGINE, "engine", "enforce_eager", "fail", "true", "arguments of pod ml/vllm-0", "on", "take --enforce-eager out")
ANSWERS = Finding(ENGINE, "engine", "answers", "pass", "", ENGINE, "its page was read", "")
HOOK = Finding(PROXY, "gateway", "hook", "unknown", "", "", "its callbacks could not be read", "set litellm_key")


def test_before_the_first_round_there_is_nothing_and_no_time(api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/fleet/checks", token("read")).json()
    assert answer == {"rows": [], "total_rows": 0, "counts": {"pass": 0, "fail": 0, "unknown": 0}, "checked_at": None}


def test_a_round_is_shown_in_the_lists_order_with_what_and_why(db: Engine, api: Api, token: TokenMaker) -> None:
    with db.begin() as connection:
        replace_findings(connection, [EAGER, ANSWERS, HOOK], NOW)
    answer = api.get("/v1/fleet/checks", token("read")).json()
    assert [(row["subject"], row["check"]) for row in answer["rows"]] == [
        (ENGINE, "answers"), (ENGINE, "enforce_eager"), (PROXY, "hook"),
    ]  # fmt: skip
    eager = answer["rows"][1]
    assert (eager["seen"], eager["where"], eager["why"]) == ("true", EAGER.where, CHECKS["enforce_eager"].why)
    assert (answer["rows"][0]["seen"], answer["rows"][0]["fix"]) == (None, None)
    assert (answer["counts"], answer["checked_at"]) == (
        {"pass": 1, "fail": 1, "unknown": 1},
        NOW.isoformat().replace("+00:00", "Z"),
    )
    fails = api.get("/v1/fleet/checks", token("read"), verdict="fail").json()
    assert ([row["check"] for row in fails["rows"]], fails["counts"]["pass"]) == (["enforce_eager"], 1)
    assert [row["check"] for row in api.get("/v1/fleet/checks", token("read"), kind="gateway").json()["rows"]] == ["hook"]


def test_a_new_round_takes_the_place_of_the_one_before(db: Engine) -> None:
    with db.begin() as connection:
        replace_findings(connection, [EAGER, HOOK], NOW)
        replace_findings(connection, [ANSWERS], NOW + timedelta(hours=1))
        assert read_findings(connection) == ([ANSWERS], NOW + timedelta(hours=1))
        replace_findings(connection, [], NOW + timedelta(hours=2))
        assert read_findings(connection) == ([], None)


def test_a_token_of_one_tenant_and_a_wrong_word_are_refused(api: Api, token: TokenMaker) -> None:
    assert api.get("/v1/fleet/checks", token("read", tenant="acme")).status_code == 403
    refused = api.get("/v1/fleet/checks", token("read"), verdict="maybe")
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "verdict")
