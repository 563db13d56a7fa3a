"""What guards get: a policy made out to them and signed with their keys, pushed when it changes; and what they report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from api_client import KEY, NOW, Api, TokenMaker
from sqlalchemy import Engine, text

from api.guard_keys import KeyRing, parse_guard_keys
from control.budgets import set_limit
from control.policy_publish import publish
from core.errors import BadInput, Refused
from core.policy import SigningKey, verify
from models.guard_repo import list_guards

pytestmark = pytest.mark.db


@pytest.fixture
def guard(token: TokenMaker) -> str:
    return token("policy", name="gateway-1")


def publish_limit(db: Engine, value: int) -> None:
    with db.begin() as connection:
        set_limit(connection, "tenant:acme/search", "max_prompt_tokens", value, "enforce", "ann", NOW)
        publish(connection, NOW)


def test_before_the_first_policy_a_guard_is_told_to_come_again(api: Api, guard: str) -> None:
    answer = api.get("/v1/policy", guard)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0


def test_the_policy_is_made_out_to_the_guard_and_signed_with_its_key(db: Engine, api: Api, guard: str) -> None:
    publish_limit(db, 8000)
    answer = api.get("/v1/policy", guard, wait=20)
    body = verify(answer.json(), [KEY], "gateway-1", 0, NOW)
    assert (body.guard, body.on_expiry) == ("gateway-1", "open")
    assert body.entries[0].limits == {"max_prompt_tokens": 8000}
    assert answer.headers["etag"] == f'"{body.version}"'
    with pytest.raises(Refused):
        verify(answer.json(), [SigningKey("k1", b"another key of 32 characters ...")], "gateway-1", 0, NOW)


def test_a_guard_without_a_key_is_404(api: Api, token: TokenMaker) -> None:
    assert api.get("/v1/policy", token("policy", name="stranger")).status_code == 404


def test_a_guard_that_holds_the_newest_waits_and_gets_304(db: Engine, api: Api, guard: str) -> None:
    publish_limit(db, 8000)
    etag = api.get("/v1/policy", guard, wait=20).headers["etag"]
    answer = api.call("GET", "/v1/policy?wait=0.05", guard, headers={"if-none-match": etag})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)


def test_a_new_policy_wakes_every_waiting_guard(db: Engine, api: Api, guard: str) -> None:
    publish_limit(db, 8000)
    held = api.get("/v1/policy", guard, wait=20).headers["etag"]
    waiting = [api.begin("GET", "/v1/policy?wait=30", guard, headers={"if-none-match": held}) for _ in range(5)]
    publish_limit(db, 4000)
    for answer in (future.result(30) for future in waiting):
        assert answer.status_code == 200
        assert verify(answer.json(), [KEY], "gateway-1", 0, NOW).entries[0].limits == {"max_prompt_tokens": 4000}


def test_a_lost_listening_connection_is_replaced(db: Engine, api: Api, guard: str) -> None:
    publish_limit(db, 8000)
    held = api.get("/v1/policy", guard, wait=20).headers["etag"]
    with db.begin() as connection:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN tokenfuse_policy%'"
        connection.execute(text(ended))
    publish_limit(db, 4000)
    answer = api.call("GET", "/v1/policy?wait=30", guard, headers={"if-none-match": held})
    assert answer.status_code == 200


def test_the_centre_knows_when_a_guard_asked_and_what_it_holds(db: Engine, api: Api, guard: str) -> None:
    publish_limit(db, 8000)
    etag = api.get("/v1/policy", guard, wait=20).headers["etag"]
    api.call("GET", "/v1/policy", guard, headers={"if-none-match": etag})
    with db.connect() as connection:
        (seen,) = list_guards(connection)
    assert (seen.name, seen.last_seen_at, f'"{seen.last_version}"') == ("gateway-1", NOW, etag)


REPORT: dict[str, Any] = {
    "since": "2026-11-30T12:00:00.000Z", "passed": 10, "refused": 0, "shadow_refused": 0, "dropped": 0, "entries": [],
    "policy_version": 7, "expired": False, "break_glass": None, "note": "", "usage": {"sent": 3, "queued": 0, "fault": ""},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "audited"),
    [
        ({}, False),
        ({"refused": 3, "entries": [{"entry": "breaker:1", "breaker": 1, "epoch": 2, "what": "refused", "requests": 3}]}, True),
        ({"dropped": 2}, True),
        ({"expired": True}, True),
        ({"break_glass": {"until": 1796066298.5, "reason": "fire"}}, True),
    ],
)
def test_a_noteworthy_report_goes_into_the_audit_trail(
    api: Api, token: TokenMaker, guard: str, changes: dict[str, Any], audited: bool
) -> None:
    answer = api.post("/v1/guards/report", guard, {**REPORT, **changes})
    assert (answer.status_code, answer.json()) == (202, {"audited": audited})
    records = api.get("/v1/audit", token("read")).json()["records"]
    assert [record["subject"] for record in records] == ["guard:gateway-1"] * audited


def test_keys_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "guards.json"
    ring = KeyRing({}, file)
    assert ring.keys_of("g") == ()
    file.write_text(json.dumps({"g": [{"key_id": "k1", "secret": "s" * 32}]}))
    assert [key.key_id for key in ring.keys_of("g")] == ["k1"]
    file.write_text(json.dumps({"g": [{"key_id": "k2", "secret": "t" * 32}, {"key_id": "k1", "secret": "s" * 32}]}))
    assert [key.key_id for key in ring.keys_of("g")] == ["k2", "k1"]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"g": 1}', b'{"g": []}', b'{"g": [{"key_id": "k"}]}', b'{"g": [1, 2, 3]}'])
def test_a_broken_key_file_is_named_and_shows_no_secret(data: bytes) -> None:
    with pytest.raises(BadInput, match=r"guards\.json"):
        parse_guard_keys(data)


def test_ready_says_what_is_missing(db: Engine, api: Api, tmp_path: Path) -> None:
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.get("/readyz").json()["status"] == "ok"
    with db.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    answer = api.get("/readyz")
    assert answer.status_code == 503
    assert "tokenfuse db upgrade" in answer.json()["checks"][0]["detail"]
