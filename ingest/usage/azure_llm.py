"""Format ``azure-llm``: Azure's LLM inference traces, CSV ``TIMESTAMP,ContextTokens,GeneratedTokens``.

2023 files: CRLF, stamps of 100 ns without a zone (UTC by their README; kept to the microsecond). 2024 files: six digits and
``+00:00``. The stamp is the arrival; no end is known, so a request lies in the minute of its stamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO

from core.errors import BadRecord
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row
from ingest.usage.traces import TraceRows, csv_rows, whole

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class AzureLlm:
    def looks_like(self, head: bytes) -> bool:
        return head.strip().startswith(b"TIMESTAMP,ContextTokens,")

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        build = TraceRows("azure-llm", options)
        for found in csv_rows(stream, COLUMNS, options.tenant_column):
            if isinstance(found, BadRow):
                yield found
                continue
            number, line, (at, tokens_in, tokens_out, *column) = found
            try:
                counts = whole(tokens_in, COLUMNS[1]), whole(tokens_out, COLUMNS[2])
                yield build.row(number, line, _instant(at), *counts, *column)
            except BadRecord as error:
                yield bad_row(number, error, line)


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRecord("is not a time", field=COLUMNS[0], value=text, hint="such as 2023-11-16 18:17:03.9799600") from error
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
