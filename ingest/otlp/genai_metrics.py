"""Points of token metrics -> lines of topic ``counter``: what gateways and SDKs counted. A cross-check, never money."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

import orjson

from core.errors import BadRecord
from core.ports import EventLog, LogBatch
from core.usage import Deployment
from core.windows import epoch_ms
from ingest.otlp.conventions import BY_ATTRIBUTE, Conventions, conventions, model_of
from ingest.otlp.genai_record import served_at
from ingest.otlp.items import CUMULATIVE, DELTA, Point
from ingest.otlp.scalars import instant, label
from ingest.usage.rows import BadRow, SourceOptions, bad_row
from ingest.usage.service import AHEAD

MAX_VALUE = 2**53
"""Histogram sums are doubles: above this they are no longer exact."""


def counter_lines(points: Sequence[Point], options: SourceOptions, now: datetime) -> tuple[list[str], list[BadRow]]:
    """The log's lines of the points that count tokens, and those that cannot be read, with the reason.

    A point of the future is refused: all that came after it in its series would look late.

    Points without a value and those of type ``total`` (a sum of the others) give neither.
    """
    table, latest_ns = conventions(), epoch_ms(now + AHEAD) * 1_000_000
    lines: list[str] = []
    bad: list[BadRow] = []
    for index, point in enumerate(points):
        try:
            line = _line(point, table, options, latest_ns)
        except BadRecord as error:
            bad.append(bad_row(index, error, {"metric": point.metric, "series": point.identity}))
            continue
        if line is not None:
            lines.append(line)
    return lines, bad


def append_counters(log: EventLog, lines: Sequence[str]) -> None:
    """Make the lines durable. Raises DiskFull (retryable); sending a point again counts nothing twice."""
    if lines:
        log.append("counter", LogBatch(lines))


def _line(point: Point, table: Conventions, options: SourceOptions, latest_ns: int) -> str | None:
    if point.fault:
        raise BadRecord(point.fault, field=point.metric)
    if point.value is None:
        return None
    if point.temporality not in (CUMULATIVE, DELTA):
        raise BadRecord("has no aggregation temporality", field=point.metric)
    token_type = _token_type(point, table)
    if token_type is None:
        return None
    instant(point.at_ns, "timeUnixNano")
    if point.at_ns > latest_ns:
        raise BadRecord(
            "is more than 5 minutes after now", field="timeUnixNano", value=point.at_ns, hint="check the sender's clock"
        )
    said, own = table.read(point.attributes), options.deployment or Deployment("default", "default", "")
    deployment = served_at(said, label(model_of(said), "model"), own, table, options)[0]
    return orjson.dumps(
        {
            "series": _series(point), "source": label(table.first(point.resource, "service"), "service.name"),
            "metric": point.metric, "cluster": deployment.cluster, "namespace": deployment.namespace,
            "model_id": deployment.model_id, "token_type": token_type, "delta": point.temporality == DELTA,
            "start_ns": point.start_ns, "at_ns": point.at_ns, "value": _tokens(point),
        }
    ).decode()  # fmt: skip


def _series(point: Point) -> str:
    """A cumulative counter is one series from its start on: a restarted process is another, and so are two processes that bear
    the same attributes. A delta's start moves with each point."""
    return f"{point.identity}:{point.start_ns}" if point.temporality == CUMULATIVE and point.start_ns else point.identity


def _tokens(point: Point) -> int:
    value = point.value
    if value is None or not math.isfinite(value) or not 0 <= value <= MAX_VALUE or value != int(value):
        raise BadRecord("must be a whole number of tokens, not negative", field=point.metric, value=value)
    return int(value)


def _token_type(point: Point, table: Conventions) -> str | None:
    named = table.metrics[point.metric]
    if named != BY_ATTRIBUTE:
        return named
    given = next((point.attributes[name] for name in table.token_type_attributes if name in point.attributes), None)
    if given in table.token_types_of_sums:
        return None
    if given not in table.token_types:
        raise BadRecord("is no token type known here", field="gen_ai.token.type", hint=f"known: {', '.join(table.token_types)}")
    return table.token_types[str(given)]
