"""Format ``mooncake``: Kimi's traces, JSON lines ``timestamp`` (ms from the start), ``input_length``,
``output_length``, ``hash_ids``.

The hash ids name 512-token blocks of the prompt; how many of them the server had cached is not in the trace, so all input counts
as uncached.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, BinaryIO

from core.errors import BadRecord
from core.usage_codec import text_field, whole_number
from ingest.usage.reading import json_items
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row
from ingest.usage.traces import DEFAULT_START, TraceRows, label_bytes

LONGEST_TRACE_MS = 366 * 86_400_000
_HIGH = 2**53


class Mooncake:
    def looks_like(self, head: bytes) -> bool:
        return b'"input_length"' in head and b'"timestamp"' in head

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        build = TraceRows("mooncake", options)
        for found in json_items(stream):
            if isinstance(found, BadRow):
                yield found
                continue
            try:
                yield _row(build, *found, options)
            except BadRecord as error:
                yield bad_row(found[0], error, found[1])


def _row(build: TraceRows, number: int, item: Any, options: SourceOptions) -> ParsedRow:
    if not isinstance(item, dict):
        raise BadRecord("must be a JSON object", field="record", value=type(item).__name__)
    for name in ("timestamp", "input_length", "output_length"):
        if item.get(name) is None:
            raise BadRecord("is required", field=name)
    after = timedelta(milliseconds=whole_number(item["timestamp"], "timestamp", 0, LONGEST_TRACE_MS))
    tokens_in = whole_number(item["input_length"], "input_length", 0, _HIGH)
    tokens_out = whole_number(item["output_length"], "output_length", 0, _HIGH)
    column = text_field(item, options.tenant_column) if options.tenant_column else ""
    content = label_bytes([item["timestamp"], tokens_in, tokens_out, item.get("hash_ids"), column])
    return build.row(number, content, (options.start_at or DEFAULT_START) + after, tokens_in, tokens_out, column)
