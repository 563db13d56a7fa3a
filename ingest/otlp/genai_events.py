"""Log records -> usage rows: a model call told as an event, or a gateway's access log line."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.otlp.access_logs import access_log_rows, is_access_log
from ingest.otlp.conventions import Conventions, conventions
from ingest.otlp.genai_record import Call, Known, Resource, prepared
from ingest.otlp.items import LogRecord
from ingest.usage.rows import ParsedRow, SourceOptions

CLIENT = 3


def log_rows(records: Sequence[LogRecord], options: SourceOptions) -> list[ParsedRow]:
    """One row per call told; ``position`` is the record's index. Other records give none.

    An event and a span of one call have one request id (response id, else the span's), so the call counts once.
    """
    table = conventions()
    found: dict[int, ParsedRow] = {}
    known = Known()
    resources = {key: Resource.of(said, table) for key, said in {id(one.resource): one.resource for one in records}.items()}
    lines = {index: record for index, record in enumerate(records) if is_access_log(record.attributes)}
    found |= access_log_rows(lines, options)
    for index, record in enumerate(records):
        if index not in lines and _event_name(record, table) in table.inference_events:
            found[index] = prepared(index, _call(record, table, resources[id(record.resource)]), table, options, known)
    return [found[index] for index in sorted(found)]


def _event_name(record: LogRecord, table: Conventions) -> object:
    return record.name or record.attributes.get(table.event_name_attribute)


def _call(record: LogRecord, table: Conventions, resource: Resource) -> Call:
    """An event is written when the call ends; it began as long before as it says it took, else then."""
    operation = table.role(record.attributes, CLIENT)[1]
    took_s = table.first(record.attributes, "duration_s")
    is_told = isinstance(took_s, (int, float)) and 0 <= took_s < 86_400
    start_ns = record.at_ns - round(float(took_s) * 1e9) if is_told and took_s is not None else record.at_ns
    is_error = table.first(record.attributes, "error_type") is not None
    return Call(
        record.trace_id,
        record.span_id,
        CLIENT,
        start_ns,
        record.at_ns,
        is_error,
        operation,
        record.attributes,
        resource,
    )
