"""One billable request as seen at the gateway, and the narrow line the stream reads of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args

from core.errors import BadRecord
from core.money import Money
from core.tokens import TokenCounts
from core.windows import MINUTE_MS, epoch_ms

SCHEMA = "usage/1"
Status = Literal["ok", "error", "aborted", "refused"]
UsageSource = Literal["exact", "estimated", "missing"]
ServiceTier = Literal["P0", "P1", "P2"]
STATUSES: tuple[str, ...] = get_args(Status)
USAGE_SOURCES: tuple[str, ...] = get_args(UsageSource)
SERVICE_TIERS: tuple[str, ...] = get_args(ServiceTier)
MAX_DURATION = timedelta(hours=1)
MAX_ID = 200
MAX_NAME = 120


@dataclass(frozen=True, slots=True, order=True)
class Deployment:
    """One served model on one pool of engines."""

    cluster: str
    namespace: str
    model_id: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace}/{self.model_id}"


@dataclass(frozen=True, slots=True, order=True)
class TenantPath:
    """To whom money is shown: organisation / team / project / user or key. Absent parts are ''."""

    org: str = ""
    team: str = ""
    project: str = ""
    user: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """Design 4.1. Times are aware UTC; ``raw`` is the source's own usage object; prompt text never enters."""

    request_id: str
    started_at: datetime
    finished_at: datetime
    deployment: Deployment
    tenant: TenantPath
    tokens: TokenCounts
    first_token_at: datetime | None = None
    requested_model: str = ""
    engine: str = ""
    usage_source: UsageSource = "exact"
    status: Status = "ok"
    policy: dict[str, Any] | None = None
    service_tier: ServiceTier = "P1"
    http_status: int | None = None
    finish_reason: str = ""
    stream: bool | None = None
    n: int = 1
    attempt: int = 1
    trace_id: str = ""
    operation_id: str = ""
    """What the caller asked once: the same on every attempt (retry, fallback) made for it."""
    ends_operation: bool | None = None
    """Whether no further attempt followed; None when the source does not say (then ``operation_end`` judges)."""
    session_id: str = ""
    tools: tuple[str, ...] = ()
    repeat_ratio: Decimal | None = None
    prefix_sketch: tuple[int, ...] = ()
    provider: str = "self_hosted"
    vendor_cost: Money | None = None
    queue_ms: int | None = None
    raw: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_times(self)
        _check_choices(self)
        _check_names(self)


def _check_times(record: UsageRecord) -> None:
    points = [("started_at", record.started_at), ("finished_at", record.finished_at)]
    if record.first_token_at is not None:
        points.append(("first_token_at", record.first_token_at))
    for name, value in points:
        if value.tzinfo is None:
            raise BadRecord("time has no zone", field=name, value=value.isoformat(), hint="send an offset such as Z")
    if record.finished_at < record.started_at:
        raise BadRecord("is before started_at", field="finished_at", value=record.finished_at.isoformat())
    if record.finished_at - record.started_at > MAX_DURATION:
        raise BadRecord("request is longer than 1 h", field="finished_at", value=record.finished_at.isoformat())
    first = record.first_token_at
    if first is not None and not record.started_at <= first <= record.finished_at:
        raise BadRecord("is outside started_at..finished_at", field="first_token_at", value=first.isoformat())


def _check_choices(record: UsageRecord) -> None:
    for name, value, allowed in (
        ("status", record.status, STATUSES),
        ("usage_source", record.usage_source, USAGE_SOURCES),
        ("service_tier", record.service_tier, SERVICE_TIERS),
    ):
        if value not in allowed:
            raise BadRecord(f"must be one of {', '.join(allowed)}", field=name, value=value)
    if record.usage_source == "missing" and (record.tokens.input_total or record.tokens.output):
        raise BadRecord("usage is missing yet tokens are given", field="usage_source", value=record.usage_source)


def _check_names(record: UsageRecord) -> None:
    if not record.request_id or len(record.request_id) > MAX_ID:
        raise BadRecord(f"must have 1 to {MAX_ID} characters", field="request_id", value=record.request_id)
    d, t = record.deployment, record.tenant
    if not d.model_id:
        raise BadRecord("must not be empty", field="deployment.model_id", value=d.model_id)
    names = (d.cluster, d.namespace, d.model_id, t.org, t.team, t.project, t.user, t.key_id)
    whole = record.request_id + "".join(names)
    if max(map(len, names)) > MAX_NAME or not whole.isprintable() or '"' in whole or "\\" in whole:
        _explain_names(record.request_id, names)


def _explain_names(request_id: str, names: tuple[str, ...]) -> None:
    for name, value in zip(("request_id", *_NAMED), (request_id, *names), strict=True):
        if name != "request_id" and len(value) > MAX_NAME:
            raise BadRecord(f"is longer than {MAX_NAME} characters", field=name, value=value)
        if not value.isprintable() or '"' in value or "\\" in value:
            raise BadRecord("holds a control character, quote or backslash", field=name, value=value)


_NAMED = (
    "deployment.cluster", "deployment.namespace", "deployment.model_id",
    "tenant.org", "tenant.team", "tenant.project", "tenant.user", "tenant.key_id",
)  # fmt: skip


LINE_COLUMNS: tuple[str, ...] = (
    "request_id",
    "first_ms",
    "finished_ms",
    "cluster",
    "namespace",
    "model_id",
    "org",
    "team",
    "project",
    "user_id",
    "key_id",
    "service_tier",
    "status",
    "usage_source",
    "workload_class",
    "input_uncached",
    "input_cache_read",
    "input_cache_write_5m",
    "input_cache_write_1h",
    "output",
    "output_reasoning",
    "duration_ms",
    "repeated_input",
    "ends_operation",
    "counted",
)
"""The ``usage`` topic's CSV columns, in order. ``first_ms`` is first_token_at, else finished_at; ``repeated_input`` is
(n - 1) x input: what an engine prefills again for n parallel answers; ``ends_operation`` is ``operation_end``;
``counted`` is 1, or 0 for a warm-up line that only fills the dedupe state. Fields are joined by "," ; a field is quoted with
'"' when it holds a comma.
No field ever holds a quote, a backslash or a line break (checked above)."""


def line_fields(record: UsageRecord, *, counted: int = 1) -> tuple[str | int, ...]:
    """The record as the columns of ``LINE_COLUMNS``."""
    d, t, k = record.deployment, record.tenant, record.tokens
    finished = epoch_ms(record.finished_at)
    first = finished if record.first_token_at is None else epoch_ms(record.first_token_at)
    return (
        record.request_id, first, finished, d.cluster, d.namespace, d.model_id,
        t.org, t.team, t.project, t.user, t.key_id, record.service_tier, record.status, record.usage_source, 0,
        k.input_uncached, k.input_cache_read, k.input_cache_write_5m, k.input_cache_write_1h, k.output, k.output_reasoning,
        finished - epoch_ms(record.started_at), (record.n - 1) * k.input_total,
        operation_end(record.ends_operation, record.status), counted,
    )  # fmt: skip


def operation_end(stated: bool | None, status: str) -> int:
    """1 when the attempt ended its operation, 0 when another attempt followed, -1 when that is not known.

    What was answered, refused or left by its caller ended; of a failure only the source can say whether it was tried again.
    """
    if stated is not None:
        return int(stated)
    return -1 if status == "error" else 1


def encode_line(fields: tuple[str | int, ...]) -> str:
    """One canonical CSV line, without its line break."""
    line = ",".join(map(str, fields))
    if line.count(",") == len(fields) - 1:
        return line
    return ",".join([f'"{f}"' if type(f) is str and "," in f else str(f) for f in fields])


@dataclass(frozen=True, slots=True)
class Slice:
    """What one request adds to one minute. Summed over its slices each measure equals the request's own count."""

    minute_ms: int
    requests: int
    tokens: TokenCounts
    prefill_context: int
    """input_uncached x input_total (the quadratic part of prefill), in the first token's minute."""
    kv_work_x2: int
    """Twice output x (input + output / 2): tokens of KV read while decoding, telescoped over the slices."""
    duration_ms: int
    repeated_input: int = 0
    """(n - 1) x input, in the first token's minute: the engine counts the prompt once per answer, the gateway once."""
    operations: int = 0
    """1 in the finish minute of the attempt that ended its operation: requests count attempts, this counts what was asked."""
    end_unknown: int = 0
    """1 in the finish minute of an attempt of which it is not known whether it ended its operation."""


def slices(
    first_ms: int, finished_ms: int, tokens: TokenCounts, duration_ms: int, repeated_input: int = 0, ends_operation: int = 1
) -> tuple[Slice, ...]:
    """Cut one request into minutes.

    Input falls into the minute of the first token; output is spread evenly over first token..finish as
    ``tokens*hi//d - tokens*lo//d``, which telescopes to the exact count; reasoning follows as ``reasoning*o//output`` of the
    output so far, so it never exceeds its slice's output; the request with its duration and
    operation falls into the finish minute.
    With no span (d = 0) all output falls into the finish minute.
    """
    first_minute, last_minute = first_ms // MINUTE_MS, finished_ms // MINUTE_MS
    span, out, total_in = finished_ms - first_ms, tokens.output, tokens.input_total
    found: list[Slice] = []
    for minute in range(first_minute, last_minute + 1):
        lo = max(minute * MINUTE_MS, first_ms) - first_ms
        hi = min((minute + 1) * MINUTE_MS, finished_ms) - first_ms
        o1, o2 = (out * lo // span, out * hi // span) if span else (0, out)
        r1, r2 = (tokens.output_reasoning * o // out for o in (o1, o2)) if out else (0, 0)
        is_first, is_last = minute == first_minute, minute == last_minute
        found.append(
            Slice(
                minute_ms=minute * MINUTE_MS,
                requests=int(is_last),
                tokens=_part(tokens, is_first, o2 - o1, r2 - r1),
                prefill_context=tokens.input_uncached * total_in if is_first else 0,
                kv_work_x2=o2 * (2 * total_in + o2) - o1 * (2 * total_in + o1),
                duration_ms=duration_ms if is_last else 0,
                repeated_input=repeated_input if is_first else 0,
                operations=int(is_last and ends_operation == 1),
                end_unknown=int(is_last and ends_operation == -1),
            )
        )
    return tuple(found)


def _part(tokens: TokenCounts, with_input: bool, output: int, reasoning: int) -> TokenCounts:
    if with_input:
        return TokenCounts(
            tokens.input_uncached, tokens.input_cache_read, tokens.input_cache_write_5m, tokens.input_cache_write_1h,
            output, reasoning,
        )  # fmt: skip
    return TokenCounts(output=output, output_reasoning=reasoning)
