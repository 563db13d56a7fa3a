"""Bytes to spans, records and points: both encodings say the same, unknown fields pass, and no bytes do more than be refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_samples import CHAT, LATER, NOW_NS, OPTIONS, counter_export, export, log_export, span

from core.errors import BadInput
from ingest.otlp import decode, decode_json
from ingest.otlp.access_logs import is_wanted
from ingest.otlp.conventions import conventions
from ingest.otlp.genai_events import log_rows
from ingest.otlp.genai_metrics import counter_lines
from ingest.otlp.genai_spans import span_rows

# The shape of the OTLP specification's own example, with a model call in the place of its attribute.
SPEC_EXAMPLE = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "my.service"}}]},
            "scopeSpans": [
                {
                    "scope": {"name": "my.library", "version": "1.0.0", "attributes": []},
                    "spans": [
                        {
                            "traceId": "5B8EFFF798038103D269B633813FC60C",
                            "spanId": "EEE19B7EC3C1B174",
                            "parentSpanId": "EEE19B7EC3C1B173",
                            "name": "chat llama",
                            "startTimeUnixNano": "1796040000000000000",
                            "endTimeUnixNano": 1796040001000000000,
                            "kind": 3,
                            "someFieldOfTomorrow": {"x": [1]},
                            "attributes": [
                                {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                                {"key": "gen_ai.request.model", "value": {"stringValue": "llama"}},
                                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "100"}},
                                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": 20}},
                                {
                                    "key": "gen_ai.response.finish_reasons",
                                    "value": {"arrayValue": {"values": [{"stringValue": "stop"}]}},
                                },
                            ],
                            "status": {"code": "STATUS_CODE_OK"},
                        }
                    ],
                }
            ],
        }
    ]
}


def test_the_specifications_example_is_read() -> None:
    (row,) = span_rows(decode_json.spans_of(json.dumps(SPEC_EXAMPLE).encode()), OPTIONS)
    record = json.loads(row.record)  # type: ignore[union-attr]
    assert record["request_id"] == "5b8efff798038103d269b633813fc60c:eee19b7ec3c1b174"
    assert (record["tokens"]["input_uncached"], record["tokens"]["output"]) == (100, 20)
    assert (record["finish_reason"], record["status"]) == ("stop", "ok")


def as_otlp_json(kind: Any, body: bytes) -> bytes:
    """A protobuf body in OTLP/JSON: as protobuf's own JSON, but ids in hex."""

    def hexed(value: Any) -> Any:
        if isinstance(value, dict):
            ids = {"traceId", "spanId", "parentSpanId"}
            return {k: base64.b64decode(v).hex() if k in ids else hexed(v) for k, v in value.items()}
        return [hexed(part) for part in value] if isinstance(value, list) else value

    return json.dumps(hexed(MessageToDict(kind.FromString(body), use_integers_for_enums=True))).encode()


def test_both_encodings_of_spans_say_the_same() -> None:
    attributes = {
        **CHAT,
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.input.messages": "secret",
    }
    body = export(span(1), span(2, attributes, parent=1, error=True, events={"First Token Stream Event": NOW_NS}))
    spans = decode.spans_of(body)
    assert decode_json.spans_of(as_otlp_json(ExportTraceServiceRequest, body)) == spans
    assert "secret" not in str(spans)


def test_both_encodings_of_points_say_the_same() -> None:
    point = ({"gen_ai.token.type": "input", "gen_ai.request.model": "llama"}, NOW_NS - 60 * 10**9, NOW_NS, 12.0)
    body = counter_export(point)
    found, json_found = decode.points_of(body), decode_json.points_of(as_otlp_json(ExportMetricsServiceRequest, body))
    assert [p.__class__(**{**_fields(p), "identity": ""}) for p in found[0]] == [
        p.__class__(**{**_fields(p), "identity": ""}) for p in json_found[0]
    ]


def _fields(point: Any) -> dict[str, Any]:
    return {name: getattr(point, name) for name in point.__slots__}


def test_both_encodings_of_logs_say_the_same() -> None:
    body = log_export(CHAT, event="gen_ai.client.inference.operation.details", body="secret")
    found = decode.logs_of(body)
    assert decode_json.logs_of(as_otlp_json(ExportLogsServiceRequest, body)) == found
    assert "secret" not in str(found)


def test_a_series_is_the_same_whatever_the_order_of_its_attributes() -> None:
    one, other = {"gen_ai.token.type": "input", "a": 1}, {"a": 1, "gen_ai.token.type": "input"}
    identities = {decode.points_of(counter_export((attributes, 1, NOW_NS, 1.0)))[0][0].identity for attributes in (one, other)}
    assert len(identities) == 1
    assert (
        decode.points_of(counter_export((one, 1, NOW_NS, 1.0), **{"service.instance.id": "b"}))[0][0].identity not in identities
    )


WRONG_JSON = [
    (b"", "is not JSON"),
    (b"[]", "must be a JSON object"),
    (b'{"resourceSpans": 5}', "resourceSpans"),
    (b'{"resourceSpans": [5]}', "resourceSpans[0]"),
    (
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "not hex"}]}]}]}',
        "resourceSpans[0].scopeSpans[0].spans[0].traceId",
    ),
    (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "now"}]}]}]}', "startTimeUnixNano"),
    (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": -1}]}]}]}', "startTimeUnixNano"),
    (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": {}}]}]}]}', "attributes"),
]


@pytest.mark.parametrize(("body", "place"), WRONG_JSON)
def test_json_that_is_no_export_request_says_where(body: bytes, place: str) -> None:
    with pytest.raises(BadInput) as found:
        decode_json.spans_of(body)
    assert place in str(found.value)


def test_an_empty_request_holds_nothing() -> None:
    assert decode.spans_of(b"") == decode.logs_of(b"") == []
    assert decode_json.spans_of(b"{}") == []


def all_ways(body: bytes) -> None:
    """Every reader takes the bytes or refuses them with BadInput; what it takes becomes rows."""
    for reader in (decode, decode_json):
        for work in (
            lambda r=reader: span_rows(r.spans_of(body), OPTIONS),
            lambda r=reader: log_rows(r.logs_of(body, is_wanted), OPTIONS),
            lambda r=reader: counter_lines(r.points_of(body)[0], OPTIONS, LATER),
        ):
            try:
                work()
            except BadInput:
                continue


@given(st.binary(max_size=400))
@example(b"\x0a\x00")
@settings(max_examples=300, deadline=None)
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    all_ways(body)


@given(st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_one_changed_byte_of_a_real_request_does_no_more(place: int, value: int) -> None:
    for body in (export(span(1), span(2, parent=1)), log_export(CHAT, event="gen_ai.client.inference.operation.details")):
        changed = bytearray(body)
        changed[place % len(body)] = value
        all_ways(bytes(changed))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "resourceSpans",
                    "scopeSpans",
                    "spans",
                    "resourceMetrics",
                    "scopeMetrics",
                    "metrics",
                    "resourceLogs",
                    "scopeLogs",
                    "logRecords",
                    "attributes",
                    "key",
                    "value",
                    "stringValue",
                    "intValue",
                    "arrayValue",
                    "values",
                    "traceId",
                    "kind",
                    "status",
                    "code",
                    "name",
                    "sum",
                    "histogram",
                    "dataPoints",
                    "resource",
                    "events",
                    "timeUnixNano",
                    "flags",
                    "asInt",
                    "asDouble",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(JSON_VALUES)
@settings(max_examples=300, deadline=None)
def test_no_json_does_more_than_be_refused(value: Any) -> None:
    all_ways(json.dumps(value).encode())


SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=200)


@given(st.dictionaries(st.sampled_from(sorted(conventions().attributes)), SCALARS, max_size=6))
@settings(max_examples=300, deadline=None)
def test_a_call_with_any_values_is_a_record_or_refused(values: dict[str, Any]) -> None:
    all_ways(export(span(1, {**CHAT, **values})))
