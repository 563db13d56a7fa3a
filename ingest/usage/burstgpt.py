"""Format ``burstgpt``: BurstGPT's request rows, CSV ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``
(seconds from the start). A row without response tokens is a failed call; it has no other mark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import BinaryIO

from core.errors import BadRecord
from core.tokens import TokenCounts
from core.usage import UsageRecord
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row, prepare
from ingest.usage.traces import DEFAULT_START, TraceRows, csv_rows, seconds_after, whole

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens")


class BurstGpt:
    def looks_like(self, head: bytes) -> bool:
        return head.strip().startswith(b"Timestamp,Model,Request tokens,Response tokens")

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        build, start = TraceRows("burstgpt", options), options.start_at or DEFAULT_START
        for found in csv_rows(stream, COLUMNS, options.tenant_column):
            if isinstance(found, BadRow):
                yield found
                continue
            number, line, values = found
            try:
                yield prepare(_record(build, line, values, start), number)
            except BadRecord as error:
                yield bad_row(number, error, line)


def _record(build: TraceRows, line: bytes, values: list[str], start: datetime) -> UsageRecord:
    after, model, *counts = values[:5]
    tokens_in, tokens_out, total = (whole(text, name) for text, name in zip(counts, COLUMNS[2:], strict=True))
    if tokens_in + tokens_out != total:
        raise BadRecord(f"is not the sum of {tokens_in} and {tokens_out}", field=COLUMNS[4], value=total)
    at = start + seconds_after(after, COLUMNS[0])
    return UsageRecord(
        request_id=build.request_id(line),
        started_at=at,
        finished_at=at,
        deployment=build.deployment,
        tenant=build.tenant(values[5] if len(values) > 5 else ""),
        tokens=TokenCounts(tokens_in, output=tokens_out),
        usage_source="exact" if total else "missing",
        status="ok" if tokens_out else "error",
        requested_model=model,
    )
