"""Export requests as an SDK would make them, and what a batch of spans gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from core.usage import Deployment, TenantPath
from core.usage_codec import decode_usage
from ingest.otlp import decode
from ingest.otlp.genai_spans import span_rows
from ingest.usage.rows import BadRow, Prepared, SourceOptions

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=2)
NOW_NS = int(NOW.timestamp()) * 10**9
START_NS = NOW_NS - 10 * 10**9
TRACE = "5b8efff798038103d269b633813fc60c"
CLIENT, SERVER, INTERNAL = 3, 2, 1
OPTIONS = SourceOptions(deployment=Deployment("prod", "llm", ""), tenant=TenantPath(org="acme"))
CHAT: dict[str, Any] = {
    "gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.request.model": "llama",
    "gen_ai.response.model": "llama", "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20,
}  # fmt: skip


def any_value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(part) for part in value]))
    return AnyValue(string_value=value)


def pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def span(number: int = 1, attributes: Mapping[str, Any] = CHAT, *, parent: int = 0, kind: int = CLIENT, **given: Any) -> Span:
    """Span ``number`` of one trace, 2 s long. ``error=True``, ``start_ns``, ``end_ns``, ``trace``, ``events={name: ns}``."""
    start_ns = given.get("start_ns", START_NS)
    made = Span(
        trace_id=bytes.fromhex(given.get("trace", TRACE)), span_id=number.to_bytes(8, "big"), kind=kind, name="chat llama",
        parent_span_id=parent.to_bytes(8, "big") if parent else b"", start_time_unix_nano=start_ns,
        end_time_unix_nano=given.get("end_ns", start_ns + 2 * 10**9), attributes=pairs(attributes),
        events=[Span.Event(name=name, time_unix_nano=at_ns) for name, at_ns in given.get("events", {}).items()],
    )  # fmt: skip
    if given.get("error"):
        made.status.code = 2
    return made


def export(*spans: Span, resource: Mapping[str, Any] = {"service.name": "shop"}) -> bytes:
    request = ExportTraceServiceRequest()
    block = request.resource_spans.add()
    block.resource.attributes.extend(pairs(resource))
    block.scope_spans.add().spans.extend(spans)
    return request.SerializeToString()


def rows(*spans: Span, options: SourceOptions = OPTIONS, **resource: Any) -> list[Any]:
    """Each row as a record, or as (field, message) of what is wrong with it."""
    body = export(*spans, resource=resource) if resource else export(*spans)
    found = span_rows(decode.spans_of(body), options)
    return [
        decode_usage(json.loads(row.record)) if isinstance(row, Prepared) else (row.error.field, row.error.message)
        for row in found
        if isinstance(row, (Prepared, BadRow))
    ]


def counter_export(
    *points: tuple[Mapping[str, Any], int, int, float],
    metric: str = "gen_ai.client.token.usage",
    delta: bool = False,
    **resource: Any,
) -> bytes:
    """Points (attributes, start_ns, at_ns, sum) of a histogram."""
    request = ExportMetricsServiceRequest()
    block = request.resource_metrics.add()
    block.resource.attributes.extend(pairs(resource or {"service.name": "gateway"}))
    made = block.scope_metrics.add().metrics.add(name=metric, unit="{token}")
    made.histogram.aggregation_temporality = 1 if delta else 2
    for attributes, start_ns, at_ns, total in points:
        made.histogram.data_points.add(
            attributes=pairs(attributes), start_time_unix_nano=start_ns, time_unix_nano=at_ns, count=1, sum=total
        )
    return request.SerializeToString()


def log_export(*records: Mapping[str, Any], event: str = "", at_ns: int = NOW_NS - 10**9, body: str = "") -> bytes:
    request = ExportLogsServiceRequest()
    block = request.resource_logs.add()
    scope = block.scope_logs.add()
    for number, attributes in enumerate(records, 1):
        record = scope.log_records.add(time_unix_nano=at_ns, event_name=event, attributes=pairs(attributes))
        record.trace_id, record.span_id = bytes.fromhex(TRACE), number.to_bytes(8, "big")
        record.body.string_value = body
    return request.SerializeToString()
