"""Format ``vtc``: the Chatbot Arena trace of the VTC paper, CSV ``req_id,client,prompt_len,output_len,req_time_s`` (seconds from
the start). ``--tenant-column client`` makes its 27 clients tenants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from core.errors import BadRecord
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row
from ingest.usage.traces import DEFAULT_START, TraceRows, csv_rows, seconds_after, whole

COLUMNS = ("req_time_s", "prompt_len", "output_len")


class Vtc:
    def looks_like(self, head: bytes) -> bool:
        return head.strip().startswith(b"req_id,client,prompt_len,output_len")

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        build = TraceRows("vtc", options)
        start = options.start_at or DEFAULT_START
        for found in csv_rows(stream, COLUMNS, options.tenant_column):
            if isinstance(found, BadRow):
                yield found
                continue
            number, line, (after, tokens_in, tokens_out, *column) = found
            try:
                counts = whole(tokens_in, COLUMNS[1]), whole(tokens_out, COLUMNS[2])
                yield build.row(number, line, start + seconds_after(after, COLUMNS[0]), *counts, *column)
            except BadRecord as error:
                yield bad_row(number, error, line)
