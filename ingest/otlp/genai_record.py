"""One model call, as a span or an event tells it, to a usage record. Which names mean what is the table's business.

Input counts of all conventions here include their cached parts (``TokenCounts.from_inclusive``); parts that exceed the whole are
refused, not guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from core.errors import BadRecord
from core.identity_codec import IDENTITY, identity_facts
from core.texts import without_texts
from core.tokens import MAX_TOKENS, TokenCounts
from core.usage import SERVICE_TIERS, Deployment, Status, TenantPath, UsageRecord, UsageSource
from ingest.otlp.conventions import USAGE, Attributes, Conventions, Facts, Scalar, model_of
from ingest.otlp.scalars import EARLIEST_US, EPOCH, LATEST_US, instant, label, short, whole
from ingest.usage.rows import BadRow, Prepared, SourceOptions, bad_row, prepare

CLIENT_SIDE = frozenset({0, 1, 3})
"""Span kinds whose server.address is the model's; a server span's is its own."""
MAX_INT = 2**63
_PATH = ("org", "team", "project", "user", "key_id")
_PLACE = ("cluster", "namespace", "server_address", "server_port", "response_model", "request_model", "provider")


@dataclass(frozen=True, slots=True)
class Resource:
    """What a resource says, and its labels for identity rules."""

    said: Facts
    identity: Mapping[str, Any]

    @classmethod
    def of(cls, attributes: Attributes, table: Conventions) -> Resource:
        labels = {name: str(attributes[name]) for name in table.identity if name in attributes}
        return cls(table.read(attributes), identity_facts(gateway=labels.get("service.name", ""), metadata=labels))


class Call(NamedTuple):
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


class Known:
    """What the calls of one batch were found to mean, by what they said: most say the same of place and tenant. Their resources
    must live as long, for one is told from another by where it is."""

    def __init__(self) -> None:
        self.places: dict[Any, tuple[Deployment, str]] = {}
        self.tenants: dict[Any, TenantPath] = {}


def prepared(position: int, call: Call, table: Conventions, options: SourceOptions, known: Known) -> Prepared | BadRow:
    """The call's row; what cannot be a record is a bad row with its reason and no text. ``known`` is of this batch alone."""
    numbers = usage_numbers(call.attributes, table)
    try:
        record = record_of(call, table, options, numbers, known)
    except BadRecord as error:
        return bad_row(position, error, {"trace_id": call.trace_id, "span_id": call.span_id, **numbers})
    strange = table.shape(call.attributes).unmapped
    return prepare(record, position, tuple(name for name in numbers if name in strange) if strange else ())


def record_of(call: Call, table: Conventions, options: SourceOptions, numbers: Mapping[str, Scalar], known: Known) -> UsageRecord:
    """The record. Raises BadRecord naming the attribute that is wrong."""
    said = table.read(call.attributes)
    both = _Both(said, call.resource.said)
    tokens, source = counts(call, table)
    started, finished = instant(call.start_ns, "startTimeUnixNano"), instant(call.end_ns, "endTimeUnixNano")
    model = label(model_of(said), "model")
    place = _key(call, said, _PLACE)
    deployment, provider = known.places.get(place) or known.places.setdefault(
        place, place_of(call, said, model, both, table, options)
    )
    http_status = whole(said.get("http_status"), "http.response.status_code", 0, 999)
    return UsageRecord(
        request_id=request_id(call, said, source),
        started_at=started,
        finished_at=finished,
        first_token_at=_first_token(call, said, started, finished),
        deployment=deployment,
        tenant=_tenant(call, both, options.tenant, known),
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
        raw=_raw(call, both, numbers, table),
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
    names = table.shape(call.attributes).usage
    found = {name: _count(call.attributes, names[name]) for name in USAGE}
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
    """The first count that is not 0 among attributes that are there; 0 when one is, None when none is."""
    found: int | None = None
    for name in names:
        value = attributes[name]
        if value != "":
            found = value if type(value) is int and 0 <= value <= MAX_TOKENS else whole(value, name, 0, MAX_TOKENS)
            if found:
                return found
    return found


class _Both(NamedTuple):
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


def _tenant(call: Call, both: _Both, given: TenantPath, known: Known) -> TenantPath:
    key = _key(call, both.said, _PATH)
    if key not in known.tenants:
        known.tenants[key] = TenantPath(*(both.label(name) or getattr(given, name) for name in _PATH))
    return known.tenants[key]


def _key(call: Call, said: Facts, fields: Sequence[str]) -> Any:
    """What decides an answer: the values with their types (1, 1.0 and true are equal), the resource, the kind of span."""
    values = tuple(map(said.get, fields))
    return values, tuple(map(type, values)), id(call.resource), call.kind


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
        at = EPOCH + timedelta(microseconds=us) if EARLIEST_US <= us < LATEST_US else None
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


def _raw(call: Call, both: _Both, numbers: Mapping[str, Scalar], table: Conventions) -> dict[str, Any]:
    """The usage numbers as they came, and what the call was called."""
    about = _about(call.operation, both.said.get("provider"), both.said.get("error_type"))
    if table.shape(call.attributes).is_plain and all(type(n) is int and -MAX_INT <= n < MAX_INT for n in numbers.values()):
        raw = {**numbers, **about}
    else:
        raw = without_texts({**numbers, **about})
    return {IDENTITY: call.resource.identity, **raw} if call.resource.identity else raw


@lru_cache(maxsize=4_096, typed=True)
def _about(operation: str, provider: Scalar | None, error_type: Scalar | None) -> dict[str, Any]:
    said = {"operation": operation or None, "provider": provider, "error_type": error_type}
    return without_texts({"otel": {name: value for name, value in said.items() if value is not None}})


def usage_numbers(attributes: Attributes, table: Conventions) -> dict[str, Scalar]:
    """The usage numbers as they came, by attribute."""
    return {name: value for name in table.shape(attributes).numbers if not isinstance(value := attributes[name], str)}
