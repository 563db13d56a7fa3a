"""Format ``otel``: what the OpenTelemetry Collector's file exporter wrote is read like what an exporter posts."""

from __future__ import annotations

import io
import json
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_samples import CHAT, OPTIONS, export, log_export, span
from test_otlp_decode import SPEC_EXAMPLE, as_otlp_json

from ingest.usage.otel import Otel
from ingest.usage.rows import BadRow, Prepared


def read(body: bytes) -> list[tuple[int, str]]:
    """(line, request id, or the field at fault)."""
    found = Otel().rows(io.BytesIO(body), OPTIONS)
    return [(row.position, row.request_id if isinstance(row, Prepared) else row.error.field) for row in found if row]  # type: ignore[union-attr]


def test_each_line_is_an_export_request() -> None:
    spans = as_otlp_json(ExportTraceServiceRequest, export(span(1), span(2)))
    details = log_export({**CHAT, "gen_ai.response.id": "chatcmpl-7"}, event="gen_ai.client.inference.operation.details")
    logs = as_otlp_json(ExportLogsServiceRequest, details)
    trace = "5b8efff798038103d269b633813fc60c"
    found = read(b"\n".join([spans, logs, b"", b'{"resourceMetrics": []}']))
    assert found == [(1, f"{trace}:{1:016x}"), (1, f"{trace}:{2:016x}"), (2, "chatcmpl-7:generation")]


def test_a_document_over_several_lines_is_one_request() -> None:
    assert read(json.dumps(SPEC_EXAMPLE, indent=1).encode()) == [(1, "5b8efff798038103d269b633813fc60c:eee19b7ec3c1b174")]


def test_a_wrong_line_says_what_is_wrong_and_the_rest_goes_on() -> None:
    good = as_otlp_json(ExportTraceServiceRequest, export(span(1)))
    wrong = b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "no hex"}]}]}]}'
    assert [field for _, field in read(b"\n".join([b"{torn", wrong, good]))][:2] == [
        "line",
        "resourceSpans[0].scopeSpans[0].spans[0].traceId",
    ]
    assert len(read(b"\n".join([b"{torn", wrong, good]))) == 3


def test_its_head_is_known(tmp_path: Path) -> None:
    assert Otel().looks_like(json.dumps(SPEC_EXAMPLE).encode()[:200])
    assert not Otel().looks_like(b'{"request_id": "x"}')
    assert all(isinstance(row, BadRow) for row in Otel().rows(io.BytesIO(b"[1]"), OPTIONS))
