"""One model call, as a span or an event tells it, to a usage record. Which names mean what is the table's business.

Input counts of all conventions here include their cached parts (``TokenCounts.from_inclusive``); parts that exceed the whole are
refused, not guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from core.errors import BadRecord
from core.identity_codec import IDENTITY, identity_facts
from core.texts import without_texts
from core.tokens import MAX_TOKENS, TokenCounts
from core.usage import MAX_NAME, SERVICE_TIERS, Deployment, Status, TenantPath, UsageRecord, UsageSource
from core.usage_codec import EARLIEST, LATEST
from ingest.otlp.conventions import USAGE, Attributes, Conventions, Facts, Scalar, model_of
from ingest.usage.rows import BadRow, Prepared, SourceOptions, bad_row, prepare

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLIENT_SIDE = frozenset({0, 1, 3})
"""Span kinds whose server.address is the model's; a server span's is its own."""
LONGEST_ID = 160
MAX_EXACT_FLOAT = 2**53
_EARLIEST_US, _LATEST_US = ((at - EPOCH) // timedelta(microseconds=1) for at in (EARLIEST, LATEST))


@dataclass(frozen=True, slots=True)
class Resource:
    """What a resource says, and its labels for identity rules."""

    said: Facts
    identity: Mapping[str, Any]

    @classmethod
    def of(cls, attributes: Attributes, table: Conventions) -> Resource:
        labels = {name: str(attributes[name]) for name in table.identity if name in attributes}
        return cls(table.read(attributes), identity_facts(gateway=labels.get("service.name", ""), metadata=labels))


@dataclass(frozen=True, slots=True)
class Call:
    """``operation`` is the value that told it is a call; ``first_event_ns`` 0 when no event tells of a first token;
    ``operation_id`` and ``attempt`` where several attempts lie in one span."""

    trace_id: str
    span_id: str
    kind: int
    start_ns: int
    end_ns: int
    is_error: bool
    operation: str
    attributes: Attributes
    resource: Resource
    first_event_ns: int = 0
    tools: tuple[str, ...] = ()
    operation_id: str = ""
    attempt: int = 1
    ends_operation: bool | None = None


def prepared(position: int, call: Call, table: Conventions, options: SourceOptions) -> Prepared | BadRow:
    """The call's row; what cannot be a record is a bad row with its reason and no text."""
    numbers = usage_numbers(call.attributes, table)
    try:
        record = record_of(call, table, options, numbers)
    except BadRecord as error:
        return bad_row(position, error, {"trace_id": call.trace_id, "span_id": call.span_id, **numbers})
    return prepare(record, position)._replace(unmapped=unmapped(numbers, table))


def record_of(call: Call, table: Conventions, options: SourceOptions, numbers: Mapping[str, Scalar]) -> UsageRecord:
    """The record. Raises BadRecord naming the attribute that is wrong."""
    said = table.read(call.attributes)
    both = _Both(said, call.resource.said)
    tokens, source = counts(call, table)
    started, finished = instant(call.start_ns, "startTimeUnixNano"), instant(call.end_ns, "endTimeUnixNano")
    model = label(model_of(said), "model")
    deployment, provider = place_of(call, said, model, both, table, options)
    http_status = whole(said.get("http_status"), "http.response.status_code", 0, 999)
    return UsageRecord(
        request_id=request_id(call, said, source),
        started_at=started,
        finished_at=finished,
        first_token_at=_first_token(call, said, started, finished),
        deployment=deployment,
        tenant=_tenant(both, options.tenant),
        tokens=tokens,
        requested_model=label(said.get("request_model"), "request_model"),
        usage_source=source,
        status=_status(call, said, table, http_status),
        service_tier=_tier(both),
        http_status=http_status,
        finish_reason=_short_label(said.get("finish_reason")),
        stream=_stream(call, said, table),
        n=whole(said.get("n"), "gen_ai.request.choice.count", 1, 1024) or 1,
        attempt=max(call.attempt, 1 + (whole(said.get("resent"), "http.request.resend_count", 0, 998) or 0)),
        trace_id=call.trace_id,
        operation_id=call.operation_id,
        ends_operation=call.ends_operation,
        session_id=short(str(said.get("session", ""))),
        tools=call.tools,
        provider=provider,
        queue_ms=_queue_ms(said.get("queue_s")),
        raw=_raw(call, both, numbers),
    )


def request_id(call: Call, said: Facts, source: UsageSource) -> str:
    """The upstream's response id and call class, as every other source of the same call gives it; a call without one, or without
    counts (another view of it may have them), is its span."""
    response_id = said.get("response_id")
    if response_id is not None and source != "missing":
        return f"{short(str(response_id))}:generation"
    if len(call.trace_id) != 32 or len(call.span_id) != 16 or not call.trace_id.strip("0") or not call.span_id.strip("0"):
        raise BadRecord("must be 16 bytes of trace id and 8 of span id, not all zero", field="traceId", value=call.trace_id[:40])
    return f"{call.trace_id}:{call.span_id}"


def counts(call: Call, table: Conventions) -> tuple[TokenCounts, UsageSource]:
    """The disjoint counts. No count at all is missing; only one of input and output, where both are to be had, is estimated."""
    found = {name: _count(call.attributes, table.usage[name]) for name in USAGE}
    given, output = found["input"], found["output"]
    if given is None and output is None:
        return TokenCounts(), "missing"
    tokens = TokenCounts.from_inclusive(
        given or 0, output or 0, cache_read=found["cache_read"] or 0, cache_write_5m=found["cache_write"] or 0,
        reasoning=found["reasoning"] or 0,
    )  # fmt: skip
    is_half = given is None or (output is None and call.operation not in table.input_only)
    return tokens, "estimated" if is_half else "exact"


def _count(attributes: Attributes, names: Sequence[str]) -> int | None:
    """The first count that is not 0; 0 when one is present, None when none is."""
    found: int | None = None
    for name in names:
        value = attributes.get(name)
        if value is not None and value != "":
            found = whole(value, name, 0, MAX_TOKENS)
            if found:
                return found
    return found


def whole(value: Scalar | None, name: str, low: int, high: int) -> int | None:
    """A whole number, also as digits or as a float without a fraction; None for None. Raises BadRecord."""
    if value is None:
        return None
    if isinstance(value, str):
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    elif isinstance(value, float):
        number = int(value) if value.is_integer() and abs(value) <= MAX_EXACT_FLOAT else None
    else:
        number = None if isinstance(value, bool) else value
    if number is None:
        raise BadRecord("must be a whole number", field=name, value=None if isinstance(value, str) else value)
    if not low <= number <= high:
        raise BadRecord(f"must be {low} to {high}", field=name, value=number)
    return number


def instant(ns: int, name: str) -> datetime:
    """UTC of ns since the epoch, to the microsecond. Raises BadRecord for 0 and what lies outside 2000 to 2099."""
    us = ns // 1000
    if not _EARLIEST_US <= us < _LATEST_US:
        raise BadRecord("is absent or outside the years 2000 to 2099", field=name, value=ns)
    return EPOCH + timedelta(microseconds=us)


@lru_cache(maxsize=20_000)
def short(name: str) -> str:
    """An id as it is when it is short and plain, else its hash."""
    if len(name) <= LONGEST_ID and name.isprintable() and not set(name) & {'"', "\\"}:
        return name
    return f"h:{blake2b(name.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"


def label(value: Scalar | None, field: str) -> str:
    """A name of at most 120 printable characters, '' for None. Raises BadRecord."""
    text = "" if value is None else str(value)
    if len(text) > MAX_NAME or not text.isprintable():
        raise BadRecord(f"must be at most {MAX_NAME} printable characters", field=field, value=len(text))
    return text


@dataclass(frozen=True, slots=True)
class _Both:
    """What a span says over what its resource says."""

    said: Facts
    resource: Facts

    def label(self, field: str) -> str:
        value = self.said.get(field)
        if value is None:
            value = self.resource.get(field)
        return "" if value is None else label(value, field)


def place_of(
    call: Call, said: Facts, model: str, both: _Both, table: Conventions, options: SourceOptions
) -> tuple[Deployment, str]:
    """The deployment that answered, and its provider."""
    given = options.deployment or Deployment("default", "default", "")
    own = Deployment(both.label("cluster") or given.cluster, both.label("namespace") or given.namespace, given.model_id)
    if call.kind not in CLIENT_SIDE:
        said = {name: value for name, value in said.items() if name != "server_address"}
    return served_at(said, model, own, table, options)


def served_at(said: Facts, model: str, own: Deployment, table: Conventions, options: SourceOptions) -> tuple[Deployment, str]:
    """(deployment, provider): a declared pool by the address called or the model, else a bought API, else ``own`` place.

    Bought is what names a vendor as provider and called that vendor's host, or no host that is told.
    """
    host = str(said.get("server_address", ""))
    for name in (f"{host}:{said.get('server_port')}", host, model) if options.pools else ():
        if name and name in options.pools:
            return options.pools[name], "self_hosted"
    provider = label(said.get("provider"), "provider").lower()
    is_bought = not host or f".{host.lower()}".endswith(table.vendor_hosts)
    if provider and provider not in table.self_hosted and model and is_bought:
        return Deployment("vendor", provider, model), provider
    return Deployment(own.cluster, own.namespace, model or own.model_id), "self_hosted"


def _tenant(both: _Both, given: TenantPath) -> TenantPath:
    return TenantPath(
        both.label("org") or given.org, both.label("team") or given.team, both.label("project") or given.project,
        both.label("user") or given.user, both.label("key_id") or given.key_id,
    )  # fmt: skip


def _tier(both: _Both) -> Any:
    named = both.label("service_tier")
    return named if named in SERVICE_TIERS else "P1"


def _status(call: Call, said: Facts, table: Conventions, http_status: int | None) -> Status:
    error_type = said.get("error_type")
    if http_status == 499 or str(error_type) in table.aborted_error_types:
        return "aborted"
    return "error" if call.is_error or error_type is not None else "ok"


def _first_token(call: Call, said: Facts, started: datetime, finished: datetime) -> datetime | None:
    """When the first token came, where that is told and lies within the call."""
    at = _after(said.get("first_token_s"), 1_000_000, started) or _after(said.get("first_token_ms"), 1000, started)
    if at is None and call.first_event_ns:
        us = call.first_event_ns // 1000
        at = EPOCH + timedelta(microseconds=us) if _EARLIEST_US <= us < _LATEST_US else None
    return at if at is not None and started <= at <= finished else None


def _after(value: Scalar | None, unit_us: int, started: datetime) -> datetime | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 86_400_000
    return started + timedelta(microseconds=round(float(value) * unit_us)) if is_number and value is not None else None


def _queue_ms(value: Scalar | None) -> int | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 86_400
    return round(float(value) * 1000) if is_number and value is not None else None


def _stream(call: Call, said: Facts, table: Conventions) -> bool | None:
    if call.operation in table.streaming_operations:
        return True
    value = said.get("stream")
    return value if isinstance(value, bool) else None


def _short_label(value: Scalar | None) -> str:
    return value if isinstance(value, str) and len(value) <= 40 and value.isprintable() else ""


def _raw(call: Call, both: _Both, numbers: Mapping[str, Scalar]) -> dict[str, Any]:
    """The usage numbers as they came, and what the call was called."""
    about: dict[str, Any] = {"operation": call.operation} if call.operation else {}
    for name in ("provider", "error_type"):
        if name in both.said:
            about[name] = both.said[name]
    raw = without_texts({**numbers, "otel": about})
    return {IDENTITY: call.resource.identity, **raw} if call.resource.identity else raw


def usage_numbers(attributes: Attributes, table: Conventions) -> dict[str, Scalar]:
    """The usage numbers as they came, by attribute."""
    prefixes = table.usage_prefixes
    return {name: value for name, value in attributes.items() if name.startswith(prefixes) and not isinstance(value, str)}


def unmapped(numbers: Mapping[str, Any], table: Conventions) -> tuple[str, ...]:
    """Those of ``numbers`` that no rule explains."""
    return tuple(name for name in numbers if name not in table.explained)
