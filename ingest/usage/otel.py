"""Format ``otel``: OTLP/JSON as the OpenTelemetry Collector's file exporter writes it, one export request of traces or logs a
line (or one whole document)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from core.errors import BadInput, BadRecord
from ingest.otlp import decode_json
from ingest.otlp.access_logs import is_wanted
from ingest.otlp.genai_events import log_rows
from ingest.otlp.genai_spans import span_rows
from ingest.usage.reading import json_items
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row


class Otel:
    """Rows bear the number of their line. A line of metrics gives none: counters are taken over HTTP only."""

    def looks_like(self, head: bytes) -> bool:
        return b'"resourceSpans"' in head or b'"resourceLogs"' in head

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        for item in json_items(stream):
            yield from [item] if isinstance(item, BadRow) else _rows(*item, options)


def _rows(position: int, item: Any, options: SourceOptions) -> Iterator[ParsedRow]:
    try:
        is_logs = isinstance(item, dict) and "resourceLogs" in item
        found = (
            log_rows(decode_json.logs_of(item, is_wanted), options) if is_logs else span_rows(decode_json.spans_of(item), options)
        )
    except BadInput as error:
        yield bad_row(position, BadRecord(error.message, field=error.field, hint=error.hint), None)
        return
    for row in found:
        yield row._replace(position=position)
