"""OTLP protobuf bodies -> spans, log records, points. Each message is walked once; only attributes the table names are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from core.errors import BadInput
from ingest.otlp.conventions import Scalar, conventions
from ingest.otlp.items import NO_LIMIT, LogRecord, Point, Span, check_count, is_read

ERROR = 2
NO_RECORDED_VALUE = 1
_SCALARS = frozenset({"string_value", "int_value", "double_value", "bool_value"})


def spans_of(body: bytes, most: int = NO_LIMIT) -> list[Span]:
    """Every span of an ExportTraceServiceRequest, in order. Raises BadInput for bytes that are none, TooManyItems."""
    first_token_events = conventions().first_token_events
    blocks = _parsed(ExportTraceServiceRequest, body).resource_spans
    check_count(sum(len(scope.spans) for block in blocks for scope in block.scope_spans), most)
    return [
        Span(
            span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.kind, span.start_time_unix_nano,
            span.end_time_unix_nano, span.status.code == ERROR, attributes_of(span.attributes),
            next((event.time_unix_nano for event in span.events if event.name in first_token_events), 0), resource,
        )
        for block in blocks
        for resource in (attributes_of(block.resource.attributes),)
        for scope in block.scope_spans
        for span in scope.spans
    ]  # fmt: skip


def logs_of(body: bytes, is_wanted: Callable[[str], bool] = is_read, most: int = NO_LIMIT) -> list[LogRecord]:
    """Every record of an ExportLogsServiceRequest, in order. Raises BadInput for bytes that are none, TooManyItems."""
    blocks = _parsed(ExportLogsServiceRequest, body).resource_logs
    check_count(sum(len(scope.log_records) for block in blocks for scope in block.scope_logs), most)
    return [
        LogRecord(
            record.event_name, record.time_unix_nano or record.observed_time_unix_nano, record.trace_id.hex(),
            record.span_id.hex(), attributes_of(record.attributes, is_wanted), resource,
        )
        for block in blocks
        for resource in (attributes_of(block.resource.attributes),)
        for scope in block.scope_logs
        for record in scope.log_records
    ]  # fmt: skip


def points_of(body: bytes, most: int = NO_LIMIT) -> tuple[list[Point], int]:
    """The points of token metrics of an ExportMetricsServiceRequest, and how many points it holds of other metrics.
    Raises BadInput for bytes that are none, TooManyItems."""
    found: list[Point] = []
    others = 0
    wanted = conventions().metrics
    for block in _parsed(ExportMetricsServiceRequest, body).resource_metrics:
        resource, whose = attributes_of(block.resource.attributes), _pairs(block.resource.attributes)
        for scope in block.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                size = len(getattr(metric, kind).data_points) if kind else 0
                if metric.name in wanted:
                    check_count(len(found) + size, most)
                    found += _points(metric, resource, whose + scope.scope.name.encode())
                else:
                    others += size
    return found, others


def attributes_of(pairs: Iterable[Any], is_wanted: Callable[[str], bool] = is_read) -> dict[str, Scalar]:
    """The wanted attributes; of a list its first scalar."""
    found: dict[str, Scalar] = {}
    for pair in pairs:
        key = pair.key
        if is_wanted(key):
            value = pair.value
            text = value.string_value
            if text:
                found[key] = text
                continue
            kind = value.WhichOneof("value")
            if kind in _SCALARS:
                found[key] = getattr(value, kind)
            elif kind == "array_value" and value.array_value.values:
                first = value.array_value.values[0]
                inner = first.WhichOneof("value")
                if inner in _SCALARS:
                    found[key] = getattr(first, inner)
    return found


def series_identity(*parts: bytes) -> str:
    """The name of one series: a hash of whose it is, its metric and its attributes."""
    return blake2b(b"\0".join(parts), digest_size=16).hexdigest()


def _points(metric: Any, resource: dict[str, Scalar], whose: bytes) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind) if kind else None
    fault = "" if kind in ("histogram", "exponential_histogram", "sum") else "is no counter or histogram"
    if kind == "sum" and not metric.sum.is_monotonic:
        fault = "is not monotonic"
    for point in data.data_points if data is not None else ():
        value = None if fault or point.flags & NO_RECORDED_VALUE else _value(kind, point)
        yield Point(
            metric.name, getattr(data, "aggregation_temporality", 0), point.start_time_unix_nano, point.time_unix_nano, value,
            attributes_of(point.attributes), series_identity(whose, metric.name.encode(), _pairs(point.attributes)), resource,
            fault or ("" if value is not None or point.flags & NO_RECORDED_VALUE else "has no sum"),
        )  # fmt: skip


def _value(kind: str | None, point: Any) -> int | float | None:
    if kind == "sum":
        which = point.WhichOneof("value")
        return getattr(point, which) if which else None
    return point.sum if point.HasField("sum") else None


def _pairs(pairs: Iterable[Any]) -> bytes:
    """Attributes in one order, whatever order they came in."""
    return b"\0".join(sorted(pair.SerializeToString(deterministic=True) for pair in pairs))


def _parsed(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise BadInput(f"is not an {kind.DESCRIPTOR.name}", field="body", hint="nothing of it was taken") from error
