"""Spans of one batch -> usage rows: each call of a model once, however many spans tell of it.

What is never counted twice (all by what the batch holds; over batches the stream drops what has the same request id):

- A wrapper: a span whose descendant is a counted call. Agents, chains and an SDK's outer span carry their children's sums.
- A view without counts: a call inside a counted span that has the counts while it has none (and did not fail: a failed attempt
  is an attempt), or one with the response id of a call that has them.
- Two spans with one response id, such as the gateway's and the SDK's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.otlp.conventions import Attributes, Conventions, Scalar, conventions
from ingest.otlp.genai_record import Call, Known, Resource, prepared
from ingest.otlp.items import Span
from ingest.otlp.scalars import short
from ingest.otlp.spans_before import SpansBefore
from ingest.usage.rows import ParsedRow, SourceOptions

MAX_TOOLS, MAX_TOOL_NAME = 64, 64
MAX_DEPTH = 256
"""A chain of parents longer than this is a loop or nobody's trace."""


@dataclass(slots=True)
class _Batch:
    """``calls``: index of each counted span -> its operation; ``with_usage``: those that have counts."""

    spans: Sequence[Span]
    calls: dict[int, str] = field(default_factory=dict)
    tools: list[int] = field(default_factory=list)
    with_usage: set[int] = field(default_factory=set)
    wrappers: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Counted span that is not to be counted -> the counted calls below it."""
    above: dict[int, list[int]] = field(default_factory=dict)
    """Counted call -> the counted spans above it, nearest first."""


def span_rows(spans: Sequence[Span], options: SourceOptions, before: SpansBefore | None = None) -> list[ParsedRow]:
    """One row per call of a model that no batch ``before`` told; ``position`` is the span's index. Other spans give none."""
    table = conventions()
    batch = _sorted(spans, table)
    if not batch.calls:
        return []
    _find_wrappers(batch)
    left_out = set(batch.wrappers) | _views_without_counts(batch, table)
    if before is not None:
        left_out |= before.told(spans, batch.calls.keys() - left_out, table)
    kept = [index for index in batch.calls if index not in left_out]
    tools = _tools_of(batch, kept, table) if batch.tools else {}
    resources = {key: Resource.of(found, table) for key, found in {id(span.resource): span.resource for span in spans}.items()}
    attempts = _attempts(batch, kept)
    calls = (_call(batch, index, tools.get(index, ()), table, resources) for index in kept)
    known = Known()
    return [
        prepared(index, call._replace(**attempts[index]) if index in attempts else call, table, options, known)
        for index, call in zip(kept, calls, strict=True)
    ]


def _sorted(spans: Sequence[Span], table: Conventions) -> _Batch:
    batch = _Batch(spans)
    for index, span in enumerate(spans):
        if not span.attributes:
            continue
        role, operation = table.role(span.attributes, span.kind)
        if role == "counted":
            batch.calls[index] = operation
            if table.has_usage(span.attributes):
                batch.with_usage.add(index)
        elif role == "tool":
            batch.tools.append(index)
    return batch


def _find_wrappers(batch: _Batch) -> None:
    spans = batch.spans
    if not any(spans[index].parent_id for index in batch.calls):
        return
    place = {(span.trace_id, span.span_id): index for index, span in enumerate(spans) if span.span_id}
    for index in batch.calls:
        batch.above[index] = [up for up in _ancestors(spans, place, index) if up in batch.calls]
    for index in batch.with_usage:
        for up in batch.above[index]:
            batch.wrappers[up].append(index)


def _ancestors(spans: Sequence[Span], place: dict[tuple[str, str], int], index: int) -> Iterator[int]:
    seen = {index}
    span = spans[index]
    while span.parent_id and len(seen) < MAX_DEPTH:
        up = place.get((span.trace_id, span.parent_id))
        if up is None or up in seen:
            return
        seen.add(up)
        yield up
        span = spans[up]


def _views_without_counts(batch: _Batch, table: Conventions) -> set[int]:
    """Calls that another span of the batch tells with counts."""
    told = {
        identity
        for index in batch.with_usage
        if index not in batch.wrappers and (identity := table.first(batch.spans[index].attributes, "response_id")) is not None
    }
    found: set[int] = set()
    for index in batch.calls.keys() - batch.with_usage:
        span = batch.spans[index]
        is_inside = any(up in batch.with_usage and up not in batch.wrappers for up in batch.above.get(index, ()))
        identity = table.first(span.attributes, "response_id")
        if (is_inside and not span.is_error) or (identity is not None and identity in told):
            found.add(index)
    return found


def _call(batch: _Batch, index: int, tools: tuple[str, ...], table: Conventions, resources: Mapping[int, Resource]) -> Call:
    span = batch.spans[index]
    return Call(
        span.trace_id, span.span_id, span.kind, span.start_ns, span.end_ns, span.is_error, batch.calls[index],
        _with_wrappers(batch, index, table), resources[id(span.resource)], span.first_event_ns, tools,
    )  # fmt: skip


def _attempts(batch: _Batch, kept: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Several calls directly in one wrapper are the attempts of what was asked once; the last to begin ended it."""
    inside: dict[int, list[int]] = defaultdict(list)
    for index in kept:
        nearest = next((up for up in batch.above.get(index, ()) if up in batch.wrappers), None)
        if nearest is not None:
            inside[nearest].append(index)
    found: dict[int, dict[str, Any]] = {}
    for up, indexes in inside.items():
        ordered = sorted(indexes, key=lambda i: (batch.spans[i].start_ns, i))
        for number, index in enumerate(ordered if len(ordered) > 1 else (), 1):
            wrapper = batch.spans[up]
            operation = f"{wrapper.trace_id}:{wrapper.span_id}"
            found[index] = {"operation_id": operation, "attempt": min(number, 1000), "ends_operation": number == len(ordered)}
    return found


def _with_wrappers(batch: _Batch, index: int, table: Conventions) -> Attributes:
    """The call's attributes, and from the spans that wrap it who called; the response id of one that wraps this call alone."""
    wrapping = [up for up in batch.above.get(index, ()) if index in batch.wrappers.get(up, ())]
    if not wrapping:
        return batch.spans[index].attributes
    found: dict[str, Scalar] = {}
    for up in reversed(wrapping):
        theirs = batch.spans[up].attributes
        wrapped = [one for one in batch.wrappers[up] if one not in batch.wrappers]
        names = table.inherited + (table.fields["response_id"] if len(wrapped) == 1 else ())
        found |= {name: theirs[name] for name in names if name in theirs}
    own = batch.spans[index].attributes
    if table.first(own, "response_id") is not None:
        found = {name: value for name, value in found.items() if name not in table.fields["response_id"]}
    return {**found, **own}


def _tools_of(batch: _Batch, kept: Sequence[int], table: Conventions) -> dict[int, tuple[str, ...]]:
    """Names of the tools each call asked for: a tool span belongs to the last call of its trace that ended before it began,
    first among those with the same parent (the agent), or to the call it lies in."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    of_trace: dict[str, list[int]] = defaultdict(list)
    for index in sorted(kept, key=lambda i: batch.spans[i].end_ns):
        of_trace[batch.spans[index].trace_id].append(index)
    for tool in batch.tools:
        span = batch.spans[tool]
        name = table.first(span.attributes, "tool_name")
        calls = of_trace.get(span.trace_id, ())
        asked = _asked_by(batch.spans, span, calls)
        if asked is not None and isinstance(name, str) and len(name) <= MAX_TOOL_NAME and name.isprintable():
            found[asked][short(name)] = None
    return {index: tuple(names)[:MAX_TOOLS] for index, names in found.items()}


def _asked_by(spans: Sequence[Span], tool: Span, calls: Sequence[int]) -> int | None:
    for index in calls:
        if spans[index].span_id == tool.parent_id:
            return index
    before = [index for index in calls if spans[index].end_ns <= tool.start_ns]
    siblings = [index for index in before if spans[index].parent_id == tool.parent_id]
    return next(reversed(siblings or before), None)
