"""POST /v1/traces, /v1/metrics, /v1/logs: answers as the OTLP specification has them, in the encoding of the request."""

from __future__ import annotations

import gzip
import json
import logging
from datetime import timedelta
from typing import Any

import httpx
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from otlp_samples import CHAT, NOW, NOW_NS, START_NS, counter_export, export, log_export, span
from otlp_server import Server
from sqlalchemy import Engine, insert
from test_otlp_decode import SPEC_EXAMPLE

from core.capacity import NodeService
from core.errors import DiskFull, Unavailable
from core.usage import Deployment
from models.partitions import ensure_months
from models.rates_repo import declare_service
from models.tables import UsageMinuteRow
from streaming.counter_topic import import_counters

pytestmark = pytest.mark.db
JSON = "application/json"
SECRET = "the quick brown fox told nobody"


@pytest.mark.parametrize("base", ["", "/otlp"])
def test_each_signal_has_its_path(server: Server, base: str) -> None:
    point = ({"gen_ai.token.type": "input", "gen_ai.request.model": "llama"}, NOW_NS - 60 * 10**9, NOW_NS, 12.0)
    details = "gen_ai.client.inference.operation.details"
    for signal, body, kind in (
        ("traces", export(span(1)), ExportTraceServiceResponse),
        ("metrics", counter_export(point), ExportMetricsServiceResponse),
        ("logs", log_export({**CHAT, "gen_ai.response.id": "chatcmpl-8"}, event=details), ExportLogsServiceResponse),
    ):
        answer = server.post(f"{base}/v1/{signal}", body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf")
        assert not kind.FromString(answer.content).HasField("partial_success")
    assert len(server.log.lines("usage")) == 2
    assert len(server.log.lines("counter")) == 1


def test_json_is_answered_in_json(server: Server) -> None:
    started = json.dumps(SPEC_EXAMPLE).replace("17960400", "17960399")
    answer = server.post("/v1/traces", started.encode(), JSON)
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, JSON, {})
    assert len(server.log.lines("usage")) == 1


def test_gzip_and_an_empty_request_are_taken(server: Server) -> None:
    assert server.post("/v1/traces", gzip.compress(export(span(1))), **{"content-encoding": "gzip"}).status_code == 200
    assert len(server.log.lines("usage")) == 1
    assert server.post("/v1/traces", b"").status_code == 200
    assert server.post("/v1/traces", b"{}", JSON).status_code == 200


def test_what_is_rejected_is_counted_kept_aside_and_not_to_be_sent_again(server: Server) -> None:
    body = export(span(1), span(2, {**CHAT, "gen_ai.usage.input_tokens": -1}), span(3, {"http.request.method": "GET"}))
    for _ in range(2):
        part = ExportTraceServiceResponse.FromString(server.post("/v1/traces", body).content).partial_success
        assert part.rejected_spans == 1
        assert "gen_ai.usage.input_tokens: must be 0 to" in part.error_message
    assert len(server.log.lines("usage")) == 1
    (first, second) = (json.loads(line) for line in server.log.lines("quarantine"))
    assert first["id"] == second["id"]
    assert first["source"] == "otlp:token-0"


def test_a_span_of_the_future_is_rejected(server: Server) -> None:
    late = START_NS + int(timedelta(minutes=6).total_seconds()) * 10**9
    answer = server.post("/v1/traces", export(span(1, start_ns=late)))
    assert "5 minutes" in ExportTraceServiceResponse.FromString(answer.content).partial_success.error_message


def test_rejected_points_and_log_records_are_counted_in_their_own_words(server: Server) -> None:
    answer = server.post("/v1/metrics", counter_export(({"gen_ai.token.type": "images"}, 1, NOW_NS, 1.0)))
    assert ExportMetricsServiceResponse.FromString(answer.content).partial_success.rejected_data_points == 1
    answer = server.post("/v1/logs", log_export({"start_time": "now", "response_code": 200, "genai_tokens_input": 1}))
    assert ExportLogsServiceResponse.FromString(answer.content).partial_success.rejected_log_records == 1
    wrong = {**SPEC_EXAMPLE["resourceSpans"][0]["scopeSpans"][0]["spans"][0], "endTimeUnixNano": 0}  # type: ignore[index]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [wrong]}]}]}).encode()
    assert server.post("/v1/traces", body, JSON).json()["partialSuccess"]["rejectedSpans"] == "1"


BAD: list[tuple[bytes, str, dict[str, str], int, int]] = [
    (b"\xff\xff\xff", "application/x-protobuf", {}, 400, 3),
    (b"\x0a\xff", "application/x-protobuf", {}, 400, 3),
    (b"{", JSON, {}, 400, 3),
    (b"\x1f\x8bjunk", "application/x-protobuf", {"content-encoding": "gzip"}, 400, 3),
    (gzip.compress(b"\0" * 65 * 1024 * 1024), "application/x-protobuf", {"content-encoding": "gzip"}, 413, 8),
    (b"\0" * 17 * 1024 * 1024, "application/x-protobuf", {}, 413, 8),
    (b"x", "application/x-protobuf", {"content-encoding": "br"}, 415, 3),
    (b"x", "text/plain", {}, 415, 3),
    (export(*[span(n, {}) for n in range(1, 20_002)]), "application/x-protobuf", {}, 413, 8),
]


@pytest.mark.parametrize(("body", "kind", "headers", "status", "code"), BAD)
def test_a_body_that_cannot_be_taken_gets_a_status_message(
    server: Server, body: bytes, kind: str, headers: dict[str, str], status: int, code: int
) -> None:
    answer = server.post("/v1/traces", body, kind, **headers)
    assert answer.status_code == status
    if kind == "application/x-protobuf":
        told = Status.FromString(answer.content)
        assert (told.code, bool(told.message)) == (code, True)
    else:
        assert answer.json()["code"] == code
        assert answer.json()["message"]
        assert answer.json()["error"]["code"]
    assert server.log.lines("usage") == []


def test_a_status_names_the_field(server: Server) -> None:
    told = Status.FromString(server.post("/v1/traces", b"\xff\xff\xff").content)
    detail = BadRequest()
    assert told.details[0].Unpack(detail)
    assert detail.field_violations[0].field == "body"


def test_without_the_right_token_nothing_is_read(server: Server) -> None:
    for headers, status, code in (
        ({"authorization": "none"}, 401, 16),
        ({"authorization": f"Bearer {server.token('read')}"}, 403, 7),
    ):
        answer = server.post("/v1/traces", export(span(1)), **headers)
        assert (answer.status_code, Status.FromString(answer.content).code) == (status, code)


@pytest.mark.parametrize("refusal", [DiskFull("full", retry_after_s=7), Unavailable("away", retry_after_s=7)])
@pytest.mark.parametrize("signal", ["traces", "metrics"])
def test_a_log_that_is_full_or_away_says_when_to_come_again(server: Server, refusal: Exception, signal: str) -> None:
    """503, for an exporter drops what is answered 507."""
    server.log.refusals.append(refusal)
    point = ({"gen_ai.token.type": "input"}, 1, NOW_NS, 1.0)
    body = export(span(1)) if signal == "traces" else counter_export(point)
    answer = server.post(f"/v1/{signal}", body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert Status.FromString(answer.content).code == 14
    assert server.post(f"/v1/{signal}", body).status_code == 200
    assert len(server.log.lines("usage" if signal == "traces" else "counter")) == 1


def test_texts_reach_nothing_that_is_written(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: dict[str, Any] = {
        "gen_ai.prompt": SECRET, "gen_ai.completion": SECRET, "gen_ai.input.messages": SECRET, "gen_ai.output.messages": SECRET,
        "gen_ai.system_instructions": SECRET, "gen_ai.prompt.0.content": SECRET, "input.value": SECRET, "output.value": SECRET,
        "llm.input_messages.0.message.content": SECRET, "ai.prompt.messages": SECRET, "ai.response.text": SECRET,
        "gen_ai.tool.call.arguments": SECRET, "traceloop.entity.input": SECRET, "gen_ai.usage.details.note": SECRET,
        "gen_ai.usage.note": SECRET, "http.request.body": SECRET,
    }  # fmt: skip
    good, bad = span(1, {**CHAT, **texts}, error=True), span(2, {**CHAT, **texts, "gen_ai.usage.input_tokens": SECRET})
    for one in (good, bad):
        one.status.message = one.name = SECRET
        event = one.events.add(name="gen_ai.user.message")
        event.attributes.add(key="content").value.string_value = SECRET
    assert server.post("/v1/traces", export(good, bad)).status_code == 200
    details = log_export({**CHAT, **texts}, event="gen_ai.client.inference.operation.details", body=SECRET)
    assert server.post("/v1/logs", details).status_code == 200
    line = {"start_time": SECRET, "response_code": 200, "genai_tokens_input": SECRET, "path": SECRET}
    assert server.post("/v1/logs", log_export(line, body=SECRET)).status_code == 200
    point = ({"gen_ai.token.type": SECRET, "gen_ai.prompt": SECRET}, 1, NOW_NS, 1.0)
    assert server.post("/v1/metrics", counter_export(point)).status_code == 200
    assert len(server.log.lines("usage")) == 1
    assert len(server.log.lines("quarantine")) == 3
    written = [path.read_bytes() for path in server.folder.rglob("*") if path.is_file()]
    assert not any(SECRET[:15].encode() in content for content in written)
    assert SECRET[:15] not in caplog.text


def test_a_tenants_token_reports_its_own_calls_and_no_counters(server: Server) -> None:
    theirs = {"authorization": f"Bearer {server.token('ingest', tenant='acme/search')}"}
    other = span(2, {**CHAT, "tokenfuse.team": "ads"})
    answer = server.post("/v1/traces", export(span(1), other), **theirs)
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 1
    (record,) = server.log.records()
    assert (record["tenant"]["org"], record["tenant"]["team"]) == ("acme", "search")
    assert server.post("/v1/metrics", b"", **theirs).status_code == 403


def test_a_model_of_the_inventory_is_that_deployment_whatever_the_provider_is_called(server: Server, db: Engine) -> None:
    place = Deployment("lab", "serving", "llama")
    with db.begin() as connection:
        declare_service(
            connection, NodeService(place, "http://10.0.0.9:8000/metrics", "n1", "A10G", 1, NOW - timedelta(days=1)), "test"
        )
    server.post("/v1/traces", export(span(1, {**CHAT, "gen_ai.provider.name": "openai"})))
    (record,) = server.log.records()
    assert record["deployment"] == {"cluster": "lab", "namespace": "serving", "model_id": "llama"}


ACCESS_LOG = {
    "start_time": "2026-11-30T11:59:50.000Z", "duration": "1526", "response_code": "200", "response_flags": "-",
    "x-request-id": "83b63da3-45a9-4196-98b8-1a7f697d6d8d", "gen_ai.request.model": "llama", "gen_ai.response.model": "-",
    "gen_ai.provider.name": "default/tars/route/aigw-run/rule/0/ref/0", "gen_ai.usage.input_tokens": "15",
    "gen_ai.usage.output_tokens": "7", "session.id": "s-1",
}  # fmt: skip


def test_an_envoy_access_log_line_is_a_record(server: Server) -> None:
    health = {"start_time": "2026-11-30T11:59:50.000Z", "response_code": "200", "gen_ai.usage.input_tokens": "-"}
    gone = {**ACCESS_LOG, "x-request-id": "gone", "response_flags": "DC", "response_code": "0"}
    assert server.post("/v1/logs", log_export(ACCESS_LOG, health, gone)).status_code == 200
    record, aborted = server.log.records()
    assert record["request_id"] == "gateway:83b63da3-45a9-4196-98b8-1a7f697d6d8d:1"
    assert (record["tokens"]["input_uncached"], record["tokens"]["output"]) == (15, 7)
    assert (record["started_at"], record["finished_at"]) == ("2026-11-30T11:59:50Z", "2026-11-30T11:59:51.526000Z")
    assert (record["deployment"]["model_id"], record["session_id"], record["status"]) == ("llama", "s-1", "ok")
    assert aborted["status"] == "aborted"


def test_an_event_and_a_span_of_one_call_count_once(server: Server) -> None:
    for named in (CHAT, {**CHAT, "gen_ai.response.id": "chatcmpl-5"}):
        server.post("/v1/traces", export(span(1, named)))
        server.post("/v1/logs", log_export(named, event="gen_ai.client.inference.operation.details"))
    assert len(server.log.lines("usage")) == 2


def test_what_a_gateway_counted_stands_beside_its_records(server: Server, db: Engine) -> None:
    """B07: a histogram that misses long streams shows as a difference, and money rests on the records."""
    with db.begin() as connection:
        ensure_months(connection, [NOW])
        key = {
            "cluster": "default",
            "namespace": "default",
            "model_id": "llama",
            "org": "acme",
            "team": "",
            "project": "",
            "user_id": "",
        }
        more = {"key_id": "", "service_tier": "P1", "status": "ok", "usage_source": "exact", "workload_class": 0}
        sums = {"requests": 1, "input_uncached": 36, "input_cache_read": 64, "output": 28}
        connection.execute(insert(UsageMinuteRow), [{**key, **more, **sums, "minute": NOW - timedelta(minutes=2)}])
    points = [
        ({"gen_ai.token.type": kind, "gen_ai.request.model": "llama"}, NOW_NS - 120 * 10**9, NOW_NS - 60 * 10**9, value)
        for kind, value in (("input", 72.0), ("output", 28.0), ("cached_input", 64.0))
    ]
    assert server.post("/v1/metrics", counter_export(*points)).status_code == 200
    server.log.lines("counter")
    import_counters(db, server.folder / "log", NOW)
    asked = {"from": (NOW - timedelta(minutes=10)).isoformat(), "to": NOW.isoformat()}
    headers = {"authorization": f"Bearer {server.token('read')}"}
    (row,) = httpx.get(f"{server.url}/v1/gateway-counters", params=asked, headers=headers).json()["rows"]
    assert (row["source"], row["model_id"]) == ("gateway", "llama")
    assert row["counted"] == {"input": 72, "output": 28, "cached_input": 64, "cache_creation_input": None, "reasoning": None}
    assert row["recorded"] == {"input": 100, "output": 28}
    assert row["difference"] == {"input": -28, "output": 0}
