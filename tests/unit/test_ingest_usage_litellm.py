"""LiteLLM's payloads and spend log become the same records, and the recording keeps its sums."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from usage_samples import MemoryLog, ingest_into, parsed

from core.usage import Deployment
from ingest.usage.rows import BadRow, ParsedRow, Prepared, ReadRow, SourceOptions

START = 1796039142.014488
USAGE = {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306, "prompt_tokens_details": {"cached_tokens": 1920}}


def payload(**changes: Any) -> dict[str, Any]:
    metadata = {"usage_object": USAGE, "user_api_key_hash": "88dc28", "user_api_key_team_alias": "search"}
    return {
        "id": "chatcmpl-1", "litellm_call_id": "call-1", "trace_id": "t1", "call_type": "acompletion", "cache_hit": None,
        "stream": None, "status": "success", "custom_llm_provider": "hosted_vllm", "startTime": START, "endTime": START + 2.5,
        "completionStartTime": START + 2.5, "model": "hosted_vllm/m", "model_id": "hash", "model_group": "asked",
        "api_base": "http://10.0.0.1:8000/v1", "end_user": "zoe", "request_tags": ["org:acme", "service_tier:P0"],
        "prompt_tokens": 2006, "completion_tokens": 300, "response_cost": 0.0, "error_information": {},
        "model_parameters": {"n": 1}, "metadata": metadata | changes.pop("metadata", {}),
    } | changes  # fmt: skip


def failure(**changes: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": 0, "completion_tokens": 0, "id": changes.get("litellm_call_id", "call-1")}
    error = {"error_class": "InternalServerError", "error_code": "500", "llm_provider": "hosted_vllm"}
    metadata = {"usage_object": {"prompt_tokens": 0, "completion_tokens": 0}} | changes.pop("metadata", {})
    said = {"status": "failure", "metadata": metadata, "error_information": error | changes.pop("error", {})}
    return payload(**(said | counts | changes))


def record(item: dict[str, Any], options: SourceOptions | None = None, format: str = "litellm") -> dict[str, Any]:
    (row,) = parsed(format, json.dumps(item).encode(), options)
    assert isinstance(row, Prepared), row
    return json.loads(row.record)  # type: ignore[no-any-return]


def test_a_success() -> None:
    found = record(payload())
    assert found["request_id"] == "chatcmpl-1:generation"
    assert found["tenant"] == {"org": "acme", "team": "search", "project": "", "user": "zoe", "key_id": "88dc28"}
    assert found["deployment"] == {"cluster": "default", "namespace": "default", "model_id": "m"}
    assert (found["requested_model"], found["service_tier"], found["http_status"]) == ("asked", "P0", 200)
    assert (found["tokens"]["input_uncached"], found["tokens"]["input_cache_read"], found["tokens"]["output"]) == (86, 1920, 300)
    assert "first_token_at" not in found
    assert "vendor_cost" not in found


STREAM = {"stream": True, "completionStartTime": START + 1}
PLAIN_USAGE = {"usage_object": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": None}}
ASKED = {"model_parameters": {"stream": True, "stream_options": {"include_usage": True}}}
SEEN = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
GONE = {"error_information": {"error_code": "499", "error_class": "ClientDisconnected"}}


@pytest.mark.parametrize(
    ("item", "source", "status"),
    [
        (payload(), "exact", "ok"),
        (payload(**STREAM), "exact", "ok"),
        (payload(**STREAM, metadata=PLAIN_USAGE), "estimated", "ok"),
        (payload(**STREAM, **ASKED, metadata=PLAIN_USAGE), "estimated", "ok"),
        (payload(**STREAM, **ASKED, metadata=PLAIN_USAGE, tokenfuse_upstream_usage=SEEN), "exact", "ok"),
        (payload(**STREAM, tokenfuse_upstream_usage={}), "estimated", "ok"),
        (payload(**STREAM, **ASKED, **GONE, metadata=PLAIN_USAGE), "estimated", "aborted"),
        (payload(**STREAM, **GONE), "estimated", "aborted"),
        (payload(metadata={"usage_object": ZEROS}, prompt_tokens=0, completion_tokens=0), "missing", "ok"),
        (payload(metadata={"usage_object": None}), "estimated", "ok"),
        (payload(metadata={"usage_object": None}, prompt_tokens=0, completion_tokens=0), "missing", "ok"),
        (failure(), "missing", "error"),
        (
            failure(completion_tokens=28, metadata={"usage_object": {"prompt_tokens": 0, "completion_tokens": 28}}),
            "estimated",
            "error",
        ),
        (failure(error={"error_class": "BudgetExceededError", "error_code": "400"}), "exact", "refused"),
        (
            failure(error={"error_class": "HTTPException", "error_code": "503", "error_message": "tokenfuse: over the cap"}),
            "exact",
            "refused",
        ),
        (failure(error={"error_class": "HTTPException", "error_code": "429", "llm_provider": ""}), "exact", "refused"),
        (failure(error={"error_class": "RateLimitError", "error_code": "429"}), "missing", "error"),
        (failure(error={"error_class": "ContextWindowExceededError", "error_code": "400"}), "missing", "error"),
        (failure(error={"error_class": "Timeout", "error_code": "408"}), "missing", "error"),
    ],
)
def test_b01_source_and_status(item: dict[str, Any], source: str, status: str) -> None:
    found = record(item)
    assert (found["usage_source"], found["status"]) == (source, status)


def test_b01_an_estimate_is_marked_and_kept_apart() -> None:
    """Truth 150 / 2700; LiteLLM booked 109 / 1803, of which the stream without usage is a guess of 9 / 3."""
    true = {
        "usage_object": {"prompt_tokens": 50, "completion_tokens": 900, "completion_tokens_details": {"reasoning_tokens": 840}}
    }
    ids = [{"id": f"chatcmpl-{n}"} for n in range(3)]
    found = [record(payload(metadata=true, **i)) for i in ids[:2]] + [record(payload(**STREAM, metadata=PLAIN_USAGE, **ids[2]))]
    sums: Counter[str] = Counter()
    for item in found:
        sums[item["usage_source"]] += item["tokens"]["output"]
    assert sums == {"exact": 1800, "estimated": 3}
    assert sum(item["tokens"]["input_uncached"] for item in found) == 109


def test_b09_reading_a_stored_answer_is_no_work() -> None:
    usage = {"usage_object": {"prompt_tokens": 121, "completion_tokens": 400}}
    made = payload(id="resp_1", call_type="aresponses", metadata=usage, response_cost=0.0023)
    bridged = payload(id="resp_1", call_type="acompletion", litellm_call_id="call-inner", metadata=usage)
    reads = [payload(id="resp_1", call_type="aget_responses", litellm_call_id=f"call-r{n}", metadata=usage) for n in range(3)]
    log = MemoryLog()
    ingest = ingest_into(log)
    body = json.dumps([reads[0], made, *reads[1:], bridged]).encode()
    verdicts = [verdict.verdict for verdict in ingest.accept(parsed("litellm", body))]
    assert verdicts == ["duplicate", "accepted", "duplicate", "duplicate", "duplicate"]
    assert {verdict.verdict for verdict in ingest.accept(parsed("litellm", body))} == {"duplicate"}
    (found,) = log.records()
    assert (found["tokens"]["input_uncached"], found["tokens"]["output"]) == (121, 400)


def test_b10_retries_and_fallbacks() -> None:
    """t1: fail, fail, ok; t2: m-fail fails, m-basic answers. Five attempts of two operations, 240 / 60 tokens once."""
    usage = {"usage_object": {"prompt_tokens": 120, "completion_tokens": 30}}
    rows = [
        failure(litellm_call_id="a", trace_id="t1"),
        failure(litellm_call_id="a", trace_id="t1", metadata={"attempted_retries": 1}),
        payload(litellm_call_id="a", trace_id="t1", metadata={**usage, "attempted_retries": 2}),
        failure(litellm_call_id="b", trace_id="t2", model="hosted_vllm/m-fail", model_group="m-fail"),
        payload(id="chatcmpl-2", litellm_call_id="b", trace_id="t2", model="hosted_vllm/m-basic", model_group="m-basic",
                metadata={**usage, "original_model_group": "m-fail"}),
    ]  # fmt: skip
    found = [record(item) for item in rows]
    assert len({item["request_id"] for item in found}) == 5
    assert {item["trace_id"] for item in found} == {"t1", "t2"}
    assert sum(item["tokens"]["input_uncached"] for item in found) == 240
    assert sum(item["tokens"]["output"] for item in found) == 60
    assert found[2]["attempt"] == 3
    assert (found[4]["requested_model"], found[4]["deployment"]["model_id"]) == ("m-fail", "m-basic")


def test_gateway_cache_hit_is_no_engine_work() -> None:
    found = record(payload(cache_hit=True, id="chatcmpl-1_cache_hit1796039142.5"))
    assert sum(found["tokens"].values()) == 0
    assert (found["request_id"], found["usage_source"]) == ("gateway:call-1:1", "exact")
    assert found["raw"]["prompt_tokens"] == 2006
    assert found["raw"]["litellm"]["cache_hit"] == "true"


@pytest.mark.parametrize(
    ("changes", "deployment", "provider"),
    [
        ({}, "prod/llm/m", "self_hosted"),
        ({"custom_llm_provider": "openai", "model": "openai/m"}, "prod/llm/m", "self_hosted"),
        (
            {"custom_llm_provider": "openai", "model": "gpt-5", "api_base": "https://api.openai.com/v1"},
            "vendor/openai/gpt-5",
            "openai",
        ),
        ({"custom_llm_provider": "anthropic", "model": "claude-x", "api_base": None}, "vendor/anthropic/claude-x", "anthropic"),
        ({"model_id": "pool-b"}, "b/llm/m", "self_hosted"),
        ({"api_base": "http://10.9.9.9:8000/v1"}, "c/llm/m", "self_hosted"),
    ],
)
def test_which_deployment_served(changes: dict[str, Any], deployment: str, provider: str) -> None:
    pools = {"pool-b": Deployment("b", "llm", "m"), "10.9.9.9:8000": Deployment("c", "llm", "m")}
    options = SourceOptions(deployment=Deployment("prod", "llm", "fallback"), pools=pools)
    found = record(payload(response_cost=0.003532, **changes), options)
    assert "/".join(found["deployment"].values()) == deployment
    assert found.get("provider", "self_hosted") == provider
    assert found.get("vendor_cost") == (None if provider == "self_hosted" else {"amount": "0.003532", "currency": "USD"})


def test_texts_are_dropped_and_labels_kept() -> None:
    calls = [{"type": "function", "function": {"name": "search", "arguments": '{"q": "SECRET"}'}}]
    answer = {"choices": [{"finish_reason": "tool_calls", "message": {"content": "SECRET", "tool_calls": calls}}]}
    tools = {"tools": [{"type": "function", "function": {"name": n, "description": "SECRET"}} for n in ("search", "mail")]}
    item = payload(messages=[{"content": "SECRET"}], response=answer, model_parameters=tools, error_str="SECRET")
    found = record(item)
    assert "SECRET" not in json.dumps(found)
    assert (found["finish_reason"], found["tools"]) == ("tool_calls", ["search"])
    (bad,) = parsed("litellm", json.dumps(payload(messages="SECRET", startTime="SECRET")).encode())
    assert isinstance(bad, BadRow)
    assert "messages" not in bad.body


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (3, "record"),
        ({"hello": 1}, "call_type"),
        (payload(startTime=None), "startTime"),
        (payload(startTime="yesterday"), "startTime"),
        (payload(endTime="2026-11-30T12:00:00"), "endTime"),
        (payload(startTime=1e30), "startTime"),
        (payload(endTime=START - 5), "finished_at"),
        (payload(prompt_tokens=-1), "prompt_tokens"),
        (payload(metadata={"usage_object": {**USAGE, "completion_tokens": 1.5}}), "completion_tokens"),
        (payload(metadata={"usage_object": {**USAGE, "prompt_tokens": 5}}), "prompt_tokens"),
        (payload(model="", model_group=""), "deployment.model_id"),
        (payload(id="", litellm_call_id=""), "litellm_call_id"),
        (payload(model="m" * 121), "model"),
        (payload(end_user='a"b'), "tenant.user"),
        (payload(response_cost=-1.0), "response_cost"),
    ],
)
def test_what_is_refused_and_where(item: Any, field: str) -> None:
    (row,) = parsed("litellm", json.dumps([item]).encode())
    assert isinstance(row, BadRow)
    assert row.error.field == field


@pytest.mark.parametrize("body", [lambda p: [p], lambda p: p, lambda p: {"event": "success", "payload": p}])
def test_every_shape_the_callback_posts(body: Any) -> None:
    """``log_format`` json_array, single or ndjson, and the recording's wrapper."""
    assert record_of_body(json.dumps(body(payload())).encode()) == record(payload())
    lines = b"\n".join(json.dumps(body(payload(id=f"c{n}"))).encode() for n in range(2))
    if not lines.startswith(b"["):
        assert [row.position for row in parsed("litellm", lines)] == [1, 2]


def record_of_body(body: bytes) -> dict[str, Any]:
    (row,) = parsed("litellm", body)
    assert isinstance(row, Prepared)
    return json.loads(row.record)  # type: ignore[no-any-return]


def spend_row(item: dict[str, Any]) -> dict[str, Any]:
    """The spend log's row of the call a payload tells of (LiteLLM 1.95.1)."""
    metadata = item["metadata"] | {"litellm_call_id": item["litellm_call_id"], "error_information": item["error_information"]}
    row_id = item["id"] if not item["cache_hit"] else "chatcmpl-1_cache_hit1796039149.9"
    return {
        "request_id": row_id, "call_type": item["call_type"], "api_key": "88dc28", "spend": item["response_cost"],
        "prompt_tokens": item["prompt_tokens"], "completion_tokens": item["completion_tokens"],
        "startTime": "2026-11-30T11:45:42.014", "endTime": "2026-11-30T11:45:44.514",
        "completionStartTime": "2026-11-30T11:45:44.514",
        "model": item["model"], "model_id": item["model_id"], "model_group": item["model_group"], "api_base": item["api_base"],
        "custom_llm_provider": item["custom_llm_provider"], "user": "default_user_id", "metadata": json.dumps(metadata),
        "cache_hit": str(item["cache_hit"]), "request_tags": json.dumps(item["request_tags"]), "team_id": "",
        "organization_id": "", "end_user": item["end_user"], "session_id": None, "status": item["status"], "messages": "SECRET",
    }  # fmt: skip


@pytest.mark.parametrize("item", [payload(), failure(), payload(cache_hit=True), payload(id="call-1")])
@pytest.mark.parametrize("export", ["json", "csv"])
def test_the_spend_log_names_a_call_as_the_callback_does(item: dict[str, Any], export: str) -> None:
    row = spend_row(item)
    if export == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(row))
        writer.writeheader()
        writer.writerow(row)
        body = text.getvalue().encode()
    else:
        body = json.dumps([row]).encode()
    (found,) = parsed("litellm-spendlog", body)
    (said,) = parsed("litellm", json.dumps(item).encode())
    assert isinstance(found, Prepared)
    assert isinstance(said, Prepared)
    assert found.request_id == said.request_id
    a, b = json.loads(found.record), json.loads(said.record)
    for name in ("tokens", "tenant", "deployment", "status", "usage_source", "requested_model"):
        assert a[name] == b[name], name
    assert b"SECRET" not in found.record


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"request_id": None}, "request_id"),
        ({"metadata": "{"}, "metadata"),
        ({"metadata": "[]"}, "metadata"),
        ({"prompt_tokens": "many", "metadata": "{}"}, "prompt_tokens"),
        ({"endTime": "later"}, "endTime"),
    ],
)
def test_bad_spend_log_rows(changes: dict[str, Any], field: str) -> None:
    (row,) = parsed("litellm-spendlog", json.dumps([spend_row(payload()) | changes]).encode())
    assert isinstance(row, BadRow)
    assert row.error.field == field


@pytest.mark.realdata
def test_the_recording_keeps_its_sums(realdata: Path) -> None:
    folder = realdata / "recordings" / "open"
    truth = json.loads((folder / "truth.json").read_text())["gateway"]
    rows: list[ParsedRow] = parsed("litellm", gzip.decompress((folder / "gateway.jsonl.gz").read_bytes()))
    found = [json.loads(row.record) for row in rows if isinstance(row, Prepared)]
    assert len(found) == len(rows) == truth["rows"] == 813
    assert len({item["request_id"] for item in found}) == 813
    assert sum(item["tokens"]["output"] for item in found) == truth["completion"] == 19661
    prompt = sum(count for item in found for name, count in item["tokens"].items() if name.startswith("input"))
    assert prompt == truth["prompt"] == 2143697
    statuses = Counter((item["status"], item["usage_source"]) for item in found)
    assert statuses == {
        ("ok", "exact"): 529, ("ok", "estimated"): 95, ("aborted", "estimated"): 43, ("error", "missing"): 135,
        ("error", "estimated"): 11,
    }  # fmt: skip
    assert sum(statuses[key] for key in statuses if key[0] in ("ok", "aborted")) == truth["success"]
    assert not any(isinstance(row, ReadRow) for row in rows)


def test_what_the_guard_did_is_kept() -> None:
    policy = {"breaker": 9, "version": 5, "action": "truncated", "prompt_tokens_before": 14_000}
    assert record(payload(tokenfuse_policy=policy))["policy"] == policy


def test_what_a_real_litellm_posted() -> None:
    """Bodies of the ``generic_api`` callback as LiteLLM 1.95.1 sent them: a plain call, streams, failures, an unknown model."""
    posts = json.loads((Path(__file__).parents[1] / "litellm" / "generic_api_bodies.json").read_text())["posts"]
    payloads = [item for post in posts for item in (post if isinstance(post, list) else [post])]
    found = [record(item) for item in payloads]
    assert Counter((item["status"], item["usage_source"]) for item in found) == {
        ("ok", "exact"): 3,
        ("ok", "estimated"): 1,
        ("error", "missing"): 1,
        ("refused", "exact"): 1,
    }
    assert {item["tenant"]["org"] for item in found} == {"acme"}
    assert "count to three" not in json.dumps(found)
