"""Envoy AI Gateway access log lines that come over OTLP: the record's attributes are the line's fields, read by the mapping of
the file format ``envoy-ai-gateway``. What no field of that mapping names is never read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO

import orjson

from core.errors import BadRecord
from ingest.otlp.conventions import Attributes, Scalar
from ingest.otlp.items import LogRecord, is_read
from ingest.usage.mapped import Mapped, builtin
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions

FORMAT = "envoy-ai-gateway"
FLAGS, DISCONNECTED, CLIENT_CLOSED = "response_flags", "DC", 499
TOLD_BY = ("input", "output", "requested_model", "model")


def is_wanted(key: str) -> bool:
    """Whether a log record's attribute is read: those of the table, and those of access logs."""
    return key in _keys() or is_read(key)


def is_access_log(attributes: Attributes) -> bool:
    """A line of an HTTP request that named a model or counted tokens; health checks and MCP calls do neither."""
    if "response_code" not in attributes or "start_time" not in attributes:
        return False
    return any(builtin(FORMAT).found(attributes, field)[1] is not None for field in TOLD_BY)


def access_log_rows(records: Mapping[int, LogRecord], options: SourceOptions) -> Iterator[tuple[int, ParsedRow]]:
    """(index, row) of each access log line of a batch, given by index."""
    lines = b"\n".join(orjson.dumps(_line(record.attributes)) for record in records.values())
    found = Mapped(FORMAT, (b"start_time",)).rows(BytesIO(lines), options)
    for index, row in zip(records, found, strict=True):
        yield index, (_without_values(row) if isinstance(row, BadRow) else row)._replace(position=index)


def _line(attributes: Attributes) -> dict[str, Scalar]:
    """The line's own fields. A client that left in mid-answer has the code the answer began with and a flag: that is a 499."""
    line = {name: value for name, value in attributes.items() if name in _keys()}
    if DISCONNECTED in str(line.pop(FLAGS, "")).split(","):
        line["response_code"] = CLIENT_CLOSED
    return line


def _without_values(row: BadRow) -> BadRow:
    """A bad row that repeats no text of the line."""
    error = row.error
    told = BadRecord(error.message, field=error.field, hint=error.hint)
    return row._replace(error=told, body={name: value for name, value in row.body.items() if not isinstance(value, str)})


@cache
def _keys() -> frozenset[str]:
    paths: Sequence[str] = [path.partition(" @")[0] for paths in builtin(FORMAT).fields.values() for path in paths]
    return frozenset({*paths, FLAGS})
