"""What is kept of a span, a log record or a metric point once decoded: identity, times and the attributes the table reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from core.errors import BadInput
from ingest.otlp.conventions import Attributes, conventions

NO_ATTRIBUTES: Mapping[str, str] = {}
CUMULATIVE, DELTA = 2, 1


class Span(NamedTuple):
    """Ids are lower-case hex, '' when absent; times are ns since the epoch, 0 when absent. ``first_event_ns`` is the time of the
    first event that means a first token."""

    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_ns: int
    end_ns: int
    is_error: bool
    attributes: Attributes
    first_event_ns: int
    resource: Attributes


class LogRecord(NamedTuple):
    """``name`` is the event's; ``at_ns`` when it happened. Its body is never read."""

    name: str
    at_ns: int
    trace_id: str
    span_id: str
    attributes: Attributes
    resource: Attributes


@dataclass(frozen=True, slots=True)
class Point:
    """One data point of a counter or histogram. ``value`` is None where the point says none was recorded or has no sum;
    ``fault`` says why the metric cannot be read as a counter."""

    metric: str
    temporality: int
    start_ns: int
    at_ns: int
    value: int | float | None
    attributes: Attributes
    identity: str
    resource: Attributes
    fault: str = ""


Spans = Sequence[Span]
NO_LIMIT = 2**63


class TooManyItems(BadInput):
    """A body of more spans, records or points than one may hold; found out before they are made."""

    code = "too_large"


def check_count(items: int, most: int) -> None:
    """Raises TooManyItems."""
    if items > most:
        raise TooManyItems(f"the body holds more than {most} records", field="body", hint="export smaller batches")


@lru_cache(maxsize=20_000)
def is_read(key: str) -> bool:
    """Whether the attribute ``key`` is one the table reads, or a usage number that could be a new one."""
    table = conventions()
    return key in table.attributes or key.startswith(table.usage_prefixes)
