"""Logs of other gateways by declared field mappings: each format's own shape, and what a wrong mapping is told."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from usage_samples import MemoryLog, ingest_into, parsed

from core.errors import BadInput
from core.usage import Deployment, TenantPath
from ingest.usage.files import ingest_file
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import BadRow, Prepared, SourceOptions

ENVOY = {
    "start_time": "2026-11-30T11:00:00.250Z", "duration": "2500", "response_code": "200", "x-request-id": "e-1",
    "gen_ai.request.model": "chat", "gen_ai.response.model": "qwen3", "gen_ai.provider.name": "default/pool-a/route/x/rule/0",
    "gen_ai.usage.input_tokens": "130213", "gen_ai.usage.output_tokens": "9", "llm_cached_input_token": "128955",
    "llm_cache_creation_input_token": "1253", "session.id": "s-1",
}  # fmt: skip
APISIX = {
    "time_iso8601": "2026-11-30T11:00:03+00:00", "request_time": "2.5", "status": "200", "request_id": "a-1",
    "llm_prompt_tokens": "2006", "llm_completion_tokens": "300", "llm_cache_read_input_tokens": "1920",
    "llm_reasoning_tokens": "7", "llm_time_to_first_token": "400", "llm_model": "qwen3", "request_llm_model": "chat",
    "consumer": "zoe",
}  # fmt: skip
HIGRESS = {
    "start_time": "2026-11-30T11:00:00Z", "request_id": "h-1", "response_code": "200",
    "ai_log": json.dumps({
        "model": "qwen-turbo", "input_token": "10", "output_token": "69", "llm_first_token_duration": "309",
        "llm_service_duration": "1955", "session_id": "sess_abc", "cached_tokens": "4", "reasoning_tokens": "3",
    }),
}  # fmt: skip
KONG = {
    "started_at": 1796036400250, "latencies": {"request": 2500}, "request": {"id": "k-1"}, "response": {"status": 200},
    "consumer": {"username": "zoe"}, "workspace_name": "acme",
    "ai": {"ai-proxy": {
        "meta": {"request_model": "chat", "response_model": "qwen3", "provider_name": "openai", "llm_latency": 2400},
        "usage": {"prompt_tokens": 28, "completion_tokens": 12, "total_tokens": 40, "cost": 0.00104, "time_per_token": 200},
    }},
}  # fmt: skip
CASES: list[tuple[str, dict[str, Any], tuple[int, ...], str, str]] = [
    ("envoy-ai-gateway", ENVOY, (5, 128955, 1253, 0, 9, 0), "gateway:e-1:1", "qwen3"),
    ("apisix", APISIX, (86, 1920, 0, 0, 300, 7), "gateway:a-1:1", "qwen3"),
    ("higress", HIGRESS, (6, 4, 0, 0, 69, 3), "gateway:h-1:1", "qwen-turbo"),
    ("kong", KONG, (28, 0, 0, 0, 12, 0), "gateway:k-1:1", "qwen3"),
]


def one(format: str, item: Any, options: SourceOptions | None = None) -> dict[str, Any]:
    (row,) = parsed(format, json.dumps(item).encode(), options)
    assert isinstance(row, Prepared), row
    return json.loads(row.record)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("format", "item", "tokens", "request_id", "model"), CASES, ids=[case[0] for case in CASES])
def test_a_call(format: str, item: dict[str, Any], tokens: tuple[int, ...], request_id: str, model: str) -> None:
    found = one(format, item)
    assert tuple(found["tokens"].values()) == tokens
    assert (found["request_id"], found["deployment"]["model_id"]) == (request_id, model)
    assert (found["status"], found["usage_source"], found["http_status"]) == ("ok", "exact", 200)
    assert ADAPTERS[format].looks_like(json.dumps(item).encode())


@pytest.mark.parametrize(
    ("format", "started", "first", "finished"),
    [
        ("envoy-ai-gateway", "2026-11-30T11:00:00.250000Z", None, "2026-11-30T11:00:02.750000Z"),
        ("apisix", "2026-11-30T11:00:00.500000Z", "2026-11-30T11:00:00.900000Z", "2026-11-30T11:00:03Z"),
        ("higress", "2026-11-30T11:00:00Z", "2026-11-30T11:00:00.309000Z", "2026-11-30T11:00:01.955000Z"),
        ("kong", "2026-11-30T11:00:00.250000Z", None, "2026-11-30T11:00:02.750000Z"),
    ],
)
def test_its_times(format: str, started: str, first: str | None, finished: str) -> None:
    found = one(format, next(case[1] for case in CASES if case[0] == format))
    assert (found["started_at"], found.get("first_token_at"), found["finished_at"]) == (started, first, finished)


def test_who_and_what_was_asked() -> None:
    assert one("kong", KONG)["tenant"] == {"org": "acme", "team": "", "project": "", "user": "zoe", "key_id": ""}
    assert one("apisix", APISIX)["requested_model"] == one("kong", KONG)["requested_model"] == "chat"
    assert (one("higress", HIGRESS)["session_id"], one("envoy-ai-gateway", ENVOY)["session_id"]) == ("sess_abc", "s-1")
    pools = {"default/pool-a/route/x/rule/0": Deployment("eu", "llm", "qwen3")}
    assert one("envoy-ai-gateway", ENVOY, SourceOptions(pools=pools))["deployment"]["cluster"] == "eu"
    options = SourceOptions(Deployment("lab", "prod", "m"), TenantPath("acme"), tenant_column="session.id")
    found = one("envoy-ai-gateway", ENVOY, options)
    assert (found["deployment"]["cluster"], found["tenant"]["org"], found["tenant"]["team"]) == ("lab", "acme", "s-1")


@pytest.mark.parametrize(
    ("changes", "status", "source"),
    [
        ({"response_code": "429", "gen_ai.usage.input_tokens": "-", "gen_ai.usage.output_tokens": "-"}, "refused", "exact"),
        ({"response_code": "503", "gen_ai.usage.input_tokens": "-", "gen_ai.usage.output_tokens": "-"}, "error", "missing"),
        ({"response_code": "0", "gen_ai.usage.input_tokens": "-", "gen_ai.usage.output_tokens": "-"}, "aborted", "missing"),
        ({"gen_ai.usage.input_tokens": "-", "gen_ai.usage.output_tokens": "-"}, "ok", "missing"),
    ],
    ids=["the gateway's own limit", "the backend failed", "the caller left", "answered without usage: missing is not zero"],
)
def test_without_counts(changes: dict[str, str], status: str, source: str) -> None:
    plain = {name: value for name, value in ENVOY.items() if not name.startswith("llm_")}
    found = one("envoy-ai-gateway", plain | changes)
    assert (found["status"], found["usage_source"], sum(found["tokens"].values())) == (status, source, 0)


@pytest.mark.parametrize(
    ("format", "item", "field"),
    [
        ("envoy-ai-gateway", ENVOY | {"gen_ai.usage.input_tokens": "5"}, "prompt_tokens"),
        ("envoy-ai-gateway", ENVOY | {"gen_ai.usage.output_tokens": "1.5"}, "gen_ai.usage.output_tokens"),
        ("envoy-ai-gateway", ENVOY | {"gen_ai.usage.output_tokens": "-3"}, "gen_ai.usage.output_tokens"),
        ("envoy-ai-gateway", ENVOY | {"gen_ai.usage.output_tokens": "NaN"}, "gen_ai.usage.output_tokens"),
        ("envoy-ai-gateway", ENVOY | {"start_time": "2026-11-30T11:00:00"}, "start_time"),
        ("envoy-ai-gateway", {k: v for k, v in ENVOY.items() if k != "start_time"}, "started_at"),
        ("envoy-ai-gateway", {k: v for k, v in ENVOY.items() if k != "gen_ai.usage.input_tokens"}, "gen_ai.usage.input_tokens"),
        ("higress", HIGRESS | {"ai_log": "{"}, "ai_log"),
        ("kong", KONG | {"latencies": {"request": -1}}, "latencies.request"),
        ("kong", [1], "record"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_path(format: str, item: Any, field: str) -> None:
    (row,) = parsed(format, json.dumps(item if isinstance(item, dict) else [item[0]]).encode())
    assert isinstance(row, BadRow)
    assert row.error.field == field


MAPPING = """
fields:
  gateway_id: call.id
  started_at: call.begin
  duration: took
  model: model
  user: who.name
  input: usage.in
  cache_read: usage.cached
  output: usage.out
times: {started_at: s, duration: s}
input_includes_cached: INCLUSIVE
constants: {org: acme, provider: self_hosted}
"""
LOG = {
    "call": {"id": "c-1", "begin": 1796036400}, "took": "1.5", "model": "m", "who": {"name": "zoe"},
    "usage": {"in": 100, "cached": 30, "out": 50},
}  # fmt: skip


def mapped(tmp_path: Path, text: str) -> SourceOptions:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return SourceOptions(mapping=path)


@pytest.mark.parametrize(("inclusive", "uncached"), [("true", 70), ("false", 100)])
def test_b06_a_mapping_says_whether_input_includes_its_cached_part(tmp_path: Path, inclusive: str, uncached: int) -> None:
    found = one("mapped", LOG, mapped(tmp_path, MAPPING.replace("INCLUSIVE", inclusive)))
    assert tuple(found["tokens"].values()) == (uncached, 30, 0, 0, 50, 0)
    assert (found["tenant"]["org"], found["tenant"]["user"], found["request_id"]) == ("acme", "zoe", "gateway:c-1:1")
    assert (found["started_at"], found["finished_at"]) == ("2026-11-30T11:00:00Z", "2026-11-30T11:00:01.500000Z")


def test_csv_by_header(tmp_path: Path) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([["at", "model", "in", "out"], ["2026-11-30 11:00:00", 'a, "b"', "7", "3"], ["2026-11-30 11:00:00"]])
    options = mapped(tmp_path, "fields: {started_at: at, model: model, input: in, output: out}\nnaive_times_are: UTC\n")
    good, bad = parsed("mapped", text.getvalue().replace('a, ""b""', "a; b").encode(), options)
    assert isinstance(good, Prepared)
    assert json.loads(good.record)["tokens"]["input_uncached"] == 7
    assert isinstance(bad, BadRow)
    assert bad.position == 3


def test_rows_without_any_id_get_a_stable_one(tmp_path: Path) -> None:
    options = mapped(tmp_path, MAPPING.replace("INCLUSIVE", "true").replace("  gateway_id: call.id\n", ""))
    body = b"\n".join([json.dumps(LOG).encode()] * 2)
    first, again = ([row.request_id for row in parsed("mapped", body, options)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 2


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        (MAPPING.replace("call.begin", "call.start"), "fields.started_at", "call.start"),
        (MAPPING.replace("usage.out", "usage.output"), "fields.output", "usage.output"),
        (MAPPING.replace("  user:", "  usr:"), "usr", "is not a field"),
        (MAPPING.replace("times:", "time:"), "time", "is not a key"),
        (MAPPING.replace("duration: s", "duration: h"), "times.duration", "unit"),
        (MAPPING.replace("took", "took @h"), "fields.duration", "unit"),
        (MAPPING.replace("INCLUSIVE", "maybe"), "input_includes_cached", "true or false"),
        ("- 1", "", "fields"),
        ("fields: {a: [", "--mapping", "YAML"),
    ],
)
def test_a_wrong_mapping_is_told_what_is_wrong(tmp_path: Path, text: str, field: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        one("mapped", LOG, mapped(tmp_path, text.replace("INCLUSIVE", "true")))
    assert caught.value.field == field
    assert says in str(caught.value)
    assert caught.value.where.endswith("mine.yaml")


def test_a_file_of_any_look_may_be_mapped(tmp_path: Path) -> None:
    options, log = mapped(tmp_path, MAPPING.replace("INCLUSIVE", "true")), MemoryLog()
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(LOG | {"span_id": "x", "start_time_iso": "", "input_tokens": 3}))
    report = ingest_file(path, "mapped", options, ingest_into(log), lambda *_: None)
    assert (report.accepted, report.quarantined) == (1, 0)
    with pytest.raises(BadInput, match=r"call\.beginn"):
        ingest_file(
            path,
            "mapped",
            mapped(tmp_path, MAPPING.replace("INCLUSIVE", "true").replace("call.begin", "call.beginn")),
            ingest_into(log),
            lambda *_: None,
        )


def test_mapped_wants_a_mapping(tmp_path: Path) -> None:
    for options in (SourceOptions(), SourceOptions(mapping=tmp_path / "absent.yaml")):
        with pytest.raises(BadInput) as caught:
            one("mapped", LOG, options)
        assert caught.value.field == "--mapping"


@pytest.mark.realdata
def test_exgentic_spans_keep_their_sums(realdata: Path) -> None:
    body = (realdata / "traces/exgentic_otel/llm_call_spans.jsonl").read_bytes()
    spans = [json.loads(line) for line in body.splitlines()]
    found = [json.loads(row.record) for row in parsed("exgentic", body) if isinstance(row, Prepared)]
    assert len(found) == len(spans) == 1104
    for ours, theirs in (("input_uncached", "input_tokens"), ("output", "output_tokens")):
        assert sum(record["tokens"][ours] for record in found) == sum(span[theirs] or 0 for span in spans)
    failed = [record for record in found if record["status"] == "error"]
    assert len(failed) == sum(span["is_error"] for span in spans)
    assert {record["usage_source"] for record in failed} == {"missing"}


@pytest.mark.realdata
def test_burstgpt_rows_keep_their_sums(realdata: Path) -> None:
    body = (realdata / "traces/burstgpt_1_daily/first30_conversation_rows.csv").read_bytes()
    options = SourceOptions(Deployment("c", "n", "gpt"))
    found = [json.loads(row.record) for row in parsed("burstgpt", body, options) if isinstance(row, Prepared)]
    assert (len(found), sum(r["tokens"]["input_uncached"] for r in found), sum(r["tokens"]["output"] for r in found)) == (
        30, 17722, 10280,
    )  # fmt: skip
    assert [(n, r["usage_source"]) for n, r in enumerate(found, 1) if r["status"] == "error"] == [(21, "missing")]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("5,GPT-4,10,5,16,API log", "Total tokens"),
        ("x,GPT-4,10,5,15,API log", "Timestamp"),
        ("5,GPT-4,-1,5,4,API log", "Request tokens"),
    ],
)
def test_bad_burstgpt_rows(row: str, field: str) -> None:
    body = f"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{row}\n".encode()
    (found,) = parsed("burstgpt", body, SourceOptions(Deployment("c", "n", "gpt")))
    assert isinstance(found, BadRow)
    assert found.error.field == field
