"""POST /v1/usage and /v1/usage/litellm: what is accepted is in the log, what is not says why, resending changes nothing."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, Clock, TokenMaker

from core.ports import EventLog
from eventlog.spool import SpoolLog

pytestmark = pytest.mark.db
NDJSON = {"content-type": "application/x-ndjson"}


def record(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "schema": "usage/1",
        "request_id": f"chatcmpl-{number}",
        "started_at": "2026-11-30T12:00:00Z",
        "first_token_at": "2026-11-30T12:00:01Z",
        "finished_at": "2026-11-30T12:00:03Z",
        "deployment": {"cluster": "c", "namespace": "n", "model_id": "llama"},
        "tenant": {"org": "acme", "team": "search"},
        "tokens": {"input_uncached": 100, "input_cache_read": 20, "output": 30},
        **changes,
    }


def logged(log: EventLog, topic: Any = "usage") -> list[str]:
    assert isinstance(log, SpoolLog)
    log.flush()
    return [line.line for line in log.read(topic)]


def test_accepted_records_are_in_the_log_when_the_answer_comes(api: Api, token: TokenMaker, log: EventLog) -> None:
    answer = api.post("/v1/usage", token("ingest"), [record(1), record(2)])
    assert answer.status_code == 202
    assert answer.json() == {
        "accepted": 2,
        "duplicate": 0,
        "quarantined": 0,
        "verdicts": [
            {"index": 0, "request_id": "chatcmpl-1", "verdict": "accepted"},
            {"index": 1, "request_id": "chatcmpl-2", "verdict": "accepted"},
        ],
    }
    assert [line.split(",")[0] for line in logged(log)] == ["chatcmpl-1", "chatcmpl-2"]


def test_one_bad_record_costs_its_neighbours_nothing(api: Api, token: TokenMaker, log: EventLog) -> None:
    negative = record(2, tokens={"input_uncached": -1, "output": 5})
    answer = api.post("/v1/usage", token("ingest"), [record(1), negative, record(3)]).json()
    assert (answer["accepted"], answer["quarantined"]) == (2, 1)
    verdict = answer["verdicts"][1]
    assert (verdict["index"], verdict["verdict"], verdict["field"]) == (1, "quarantined", "tokens.input_uncached")
    assert "must not be negative" in verdict["reason"]
    assert len(logged(log)) == 2
    assert len(logged(log, "quarantine")) == 1


def test_the_same_batch_again_changes_nothing(api: Api, token: TokenMaker, log: EventLog) -> None:
    text = token("ingest")
    api.post("/v1/usage", text, [record(1), record(2)])
    again = api.post("/v1/usage", text, [record(1), record(2)]).json()
    assert (again["accepted"], again["duplicate"]) == (0, 2)
    assert len(logged(log)) == 2


def test_lines_and_gzip_are_taken_too(api: Api, token: TokenMaker, log: EventLog) -> None:
    lines = "\n".join(json.dumps(record(n)) for n in range(5)).encode()
    packed = {**NDJSON, "content-encoding": "gzip"}
    assert api.call("POST", "/v1/usage", token("ingest"), content=gzip.compress(lines), headers=packed).status_code == 202
    assert len(logged(log)) == 5


def test_a_torn_line_is_quarantined_with_its_number_and_the_rest_goes_on(api: Api, token: TokenMaker, log: EventLog) -> None:
    lines = b"\n".join([json.dumps(record(1)).encode(), b'{"request_id": "chat', json.dumps(record(3)).encode()])
    answer = api.call("POST", "/v1/usage", token("ingest"), content=lines, headers=NDJSON).json()
    assert [v["verdict"] for v in answer["verdicts"]] == ["accepted", "quarantined", "accepted"]
    assert "not JSON" in answer["verdicts"][1]["reason"]


BAD_BODIES = [
    pytest.param(b"", "application/json", 400, "the body is empty", id="empty"),
    pytest.param(b"<html>", "application/json", 400, "is not JSON", id="not JSON"),
    pytest.param(b'[{"a": 1}, {"a"', "application/json", 400, "is not JSON", id="an array cut short"),
    pytest.param(b"\x1f\x8bjunk", "application/json", 400, "gzip body is damaged", id="broken gzip"),
    pytest.param(b"a=1", "application/x-www-form-urlencoded", 415, "usage is taken as JSON", id="a form"),
    pytest.param(gzip.compress(b" " * (65 * 1024 * 1024)), "application/json", 413, "unpacks to more than", id="a bomb"),
    pytest.param(b"[" + b"0," * 20_000 + b"0]", "application/json", 413, "more than 20000 records", id="too many records"),
    pytest.param(b" " * (17 * 1024 * 1024), "application/json", 413, "larger than 16 MB", id="too large"),
]


@pytest.mark.parametrize(("body", "kind", "status", "says"), BAD_BODIES)
def test_a_body_that_cannot_be_taken_says_why_and_leaves_nothing(
    api: Api, token: TokenMaker, log: EventLog, body: bytes, kind: str, status: int, says: str
) -> None:
    answer = api.call("POST", "/v1/usage", token("ingest"), content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]
    assert logged(log) == []


@pytest.mark.parametrize("item", [None, 1, "text", [], {}, {"request_id": 5}, {"request_id": "x" * 201}])
def test_whatever_a_record_is_it_gets_a_verdict(api: Api, token: TokenMaker, item: Any) -> None:
    answer = api.post("/v1/usage", token("ingest"), [item])
    assert answer.status_code == 202
    assert answer.json()["quarantined"] == 1


def test_a_tenants_token_reports_for_its_own_tenant_only(api: Api, token: TokenMaker, log: EventLog) -> None:
    other = record(2, tenant={"org": "acme", "team": "searchers"})
    answer = api.post("/v1/usage", token("ingest", tenant="acme/search"), [record(1), other]).json()
    assert [v["verdict"] for v in answer["verdicts"]] == ["accepted", "quarantined"]
    assert answer["verdicts"][1]["field"] == "tenant"
    assert len(logged(log)) == 1


def test_what_litellm_posts_is_taken_by_configuration_alone(api: Api, token: TokenMaker, log: EventLog, clock: Clock) -> None:
    clock.at = datetime(2026, 11, 30, 20, tzinfo=UTC)
    bodies = json.loads((Path(__file__).parents[1] / "litellm" / "generic_api_bodies.json").read_text())
    text = token("ingest")
    answers = [api.post("/v1/usage/litellm", text, post) for post in bodies["posts"]]
    assert {answer.status_code for answer in answers} == {202}
    assert sum(answer.json()["quarantined"] for answer in answers) == 0
    lines = logged(log)
    assert len(lines) == sum(answer.json()["accepted"] for answer in answers) > 0
    kept = "".join(line.record.decode() for line in log.read("usage") if line.record)
    assert "content" not in kept
