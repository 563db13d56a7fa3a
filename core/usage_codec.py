"""The ``usage/1`` JSON of one usage record, both ways. Decoding is strict; encoding is canonical (one record, one text)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from operator import attrgetter
from typing import Any

from core.errors import BadInput, BadRecord
from core.money import Money, plain
from core.texts import TEXT_KEYS, without_texts
from core.tokens import TOKEN_FIELDS, TokenCounts
from core.usage import MAX_ID, MAX_NAME, SCHEMA, Deployment, TenantPath, UsageRecord
from core.usage_objects import merge_stream_usage, tokens_from_usage

DEPLOYMENT_KEYS = ("cluster", "namespace", "model_id")
TENANT_KEYS = ("org", "team", "project", "user", "key_id")
REQUIRED = ("request_id", "started_at", "finished_at", "deployment")
KNOWN_KEYS = frozenset(
    {
        "schema", *REQUIRED, "first_token_at", "tenant", "tokens", "requested_model", "engine", "usage_source", "status",
        "policy", "service_tier", "http_status", "finish_reason", "stream", "n", "attempt", "trace_id", "operation_id",
        "session_id", "ends_operation", "tools",
        "repeat_ratio", "prefix_sketch", "provider", "vendor_cost", "queue_ms", "raw",
    }
)  # fmt: skip
UNMAPPED = "unmapped"
"""Key of ``raw`` under which fields this schema does not know are kept."""
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Outside these a time is a unit slip (seconds read as milliseconds), not a date."""
MAX_TOOLS = 64
TIMES = ("started_at", "first_token_at", "finished_at")


def decode_usage(item: Any) -> UsageRecord:
    """One parsed JSON object as a record. Raises BadRecord naming the field that is wrong.

    Without ``tokens`` they are read from ``raw`` (a provider's usage object, or the list of a stream's usage objects); without
    both the usage is missing. Unknown fields are kept under ``raw.unmapped``; fields that hold text are dropped.
    """
    if not isinstance(item, dict):
        raise BadRecord("must be a JSON object", field="record", value=type(item).__name__)
    if item.get("schema", SCHEMA) != SCHEMA:
        raise BadRecord(f"must be {SCHEMA}", field="schema", value=item["schema"])
    for name in REQUIRED:
        if item.get(name) is None:
            raise BadRecord("is required", field=name)
    tokens, source = _tokens(item)
    return UsageRecord(
        request_id=text_field(item, "request_id", limit=MAX_ID),
        started_at=time_field(item, "started_at"),
        finished_at=time_field(item, "finished_at"),
        first_token_at=time_field(item, "first_token_at") if item.get("first_token_at") is not None else None,
        deployment=_deployment(item),
        tenant=_tenant(item),
        tokens=tokens,
        usage_source=source,
        status=_choice(item, "status", "ok"),
        service_tier=_choice(item, "service_tier", "P1"),
        **_texts(item),
        **_numbers(item),
        stream=_flag(item, "stream"),
        ends_operation=_flag(item, "ends_operation"),
        tools=_tools(item),
        repeat_ratio=_ratio(item),
        prefix_sketch=_sketch(item),
        vendor_cost=_cost(item),
        policy=without_texts(_object(item, "policy")) if item.get("policy") is not None else None,
        raw=_raw(item),
    )


def usage_object(record: UsageRecord) -> dict[str, Any]:
    """The record as JSON-able values in canonical key order; fields at their default are left out (identity, times, tokens,
    source, status and tier always stand)."""
    found = usage_values(record)
    return found | {name: stamp(found[name]) for name in TIMES if name in found}


def usage_values(record: UsageRecord) -> dict[str, Any]:
    """``usage_object`` with its times in UTC as they are, for an encoder that writes them as ``stamp`` does."""
    d, t, k = record.deployment, record.tenant, record.tokens
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "request_id": record.request_id,
        "started_at": _utc(record.started_at),
        "first_token_at": _utc(record.first_token_at) if record.first_token_at else None,
        "finished_at": _utc(record.finished_at),
        "deployment": {"cluster": d.cluster, "namespace": d.namespace, "model_id": d.model_id},
        "tenant": {"org": t.org, "team": t.team, "project": t.project, "user": t.user, "key_id": t.key_id},
        "tokens": dict(zip(TOKEN_FIELDS, _tokens_told(k), strict=True)),
        "usage_source": record.usage_source,
        "status": record.status,
        "service_tier": record.service_tier,
    }
    if record.first_token_at is None:
        del found["first_token_at"]
    for (name, default), value in zip(_OPTIONAL, _optional_told(record), strict=True):
        if value != default:
            found[name] = _jsonable(value)
    return found


def encode_usage(record: UsageRecord) -> bytes:
    """The record as canonical UTF-8 JSON without a line break."""
    return json.dumps(usage_object(record), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def stamp(at: datetime) -> str:
    """RFC 3339 in UTC with Z; microseconds only where there are any."""
    return _utc(at).isoformat().removesuffix("+00:00") + "Z"


def _utc(at: datetime) -> datetime:
    return at if at.tzinfo is UTC else at.astimezone(UTC)


_OPTIONAL: tuple[tuple[str, Any], ...] = (
    ("requested_model", ""), ("engine", ""), ("policy", None), ("http_status", None), ("finish_reason", ""), ("stream", None),
    ("n", 1), ("attempt", 1), ("trace_id", ""), ("operation_id", ""), ("session_id", ""), ("ends_operation", None), ("tools", ()),
    ("repeat_ratio", None), ("prefix_sketch", ()),
    ("provider", "self_hosted"), ("vendor_cost", None), ("queue_ms", None), ("raw", {}),
)  # fmt: skip
_optional_told = attrgetter(*(name for name, _ in _OPTIONAL))
_AS_THEY_ARE = frozenset({str, int, bool, dict})
_tokens_told = attrgetter(*TOKEN_FIELDS)


def _jsonable(value: Any) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Money):
        return {"amount": plain(value.amount), "currency": value.currency}
    if isinstance(value, Decimal):
        return plain(value)
    return list(value) if isinstance(value, tuple) else value


def time_field(item: Mapping[str, Any], name: str) -> datetime:
    """An aware RFC 3339 time in UTC between 2000 and 2100, or BadRecord."""
    value = item[name]
    if not isinstance(value, str):
        raise BadRecord("must be an RFC 3339 time in quotes", field=name, value=value, hint="such as 2026-11-30T12:00:00Z")
    try:
        at = datetime.fromisoformat(value)
    except ValueError as error:
        raise BadRecord("is not an RFC 3339 time", field=name, value=value, hint="such as 2026-11-30T12:00:00Z") from error
    if at.tzinfo is None:
        raise BadRecord("time has no zone", field=name, value=value, hint="send an offset such as Z")
    if not EARLIEST <= at < LATEST:
        raise BadRecord("is outside the years 2000 to 2099", field=name, value=value)
    return at.astimezone(UTC)


def text_field(item: Mapping[str, Any], name: str, *, limit: int = MAX_NAME, field: str = "") -> str:
    """A printable string of at most ``limit`` characters ('' when absent or null), or BadRecord."""
    value, shown = item.get(name), field or name
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRecord("must be a string", field=shown, value=value)
    if len(value) > limit:
        raise BadRecord(f"is longer than {limit} characters", field=shown, value=value)
    if not value.isprintable():
        raise BadRecord("holds a control character", field=shown, value=value)
    return value


def _object(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = item.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRecord("must be an object", field=name, value=value)
    return value


def _parts(item: Mapping[str, Any], name: str, keys: Iterable[str]) -> list[str]:
    parts = _object(item, name)
    known = tuple(keys)
    for key in parts:
        if key not in known:
            raise BadRecord(f"is not one of {', '.join(known)}", field=f"{name}.{key}")
    return [text_field(parts, key, field=f"{name}.{key}") for key in known]


def _deployment(item: Mapping[str, Any]) -> Deployment:
    return Deployment(*_parts(item, "deployment", DEPLOYMENT_KEYS))


def _tenant(item: Mapping[str, Any]) -> TenantPath:
    return TenantPath(*_parts(item, "tenant", TENANT_KEYS))


def _tokens(item: Mapping[str, Any]) -> tuple[TokenCounts, Any]:
    stated = item.get("usage_source")
    if item.get("tokens") is not None:
        counts = _object(item, "tokens")
        for name in counts:
            if name not in TOKEN_FIELDS:
                raise BadRecord(f"is not one of {', '.join(TOKEN_FIELDS)}", field=f"tokens.{name}")
        return TokenCounts(**counts), "exact" if stated is None else stated
    raw = _usage_of(item)
    if raw and stated != "missing":
        return tokens_from_usage(raw), "exact" if stated is None else stated
    if stated not in (None, "missing"):
        raise BadRecord("is required unless usage_source is missing", field="tokens")
    return TokenCounts(), "missing"


def _usage_of(item: Mapping[str, Any]) -> Mapping[str, Any]:
    raw = item.get("raw")
    if isinstance(raw, list):
        events = [event for event in raw if isinstance(event, dict)]
        return merge_stream_usage(event["usage"] if isinstance(event.get("usage"), dict) else event for event in events)
    return _object(item, "raw")


def _raw(item: Mapping[str, Any]) -> dict[str, Any]:
    raw = without_texts(_usage_of(item))
    unknown = {name: value for name, value in item.items() if name not in KNOWN_KEYS and name not in TEXT_KEYS}
    kept = without_texts(unknown) if unknown else {}
    return raw | {UNMAPPED: kept} if kept else raw


def _choice(item: Mapping[str, Any], name: str, default: str) -> Any:
    value = item.get(name)
    return default if value is None else value


def _texts(item: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "requested_model": MAX_NAME, "engine": MAX_NAME, "finish_reason": MAX_NAME, "trace_id": MAX_ID,
        "operation_id": MAX_ID, "session_id": MAX_ID,
    }  # fmt: skip
    found = {name: text_field(item, name, limit=limit) for name, limit in names.items()}
    return found | {"provider": text_field(item, "provider") or "self_hosted"}


def whole_number(value: Any, name: str, low: int, high: int) -> int:
    """A JSON whole number in low..high, or BadRecord."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRecord("must be a whole number", field=name, value=value)
    if not low <= value <= high:
        raise BadRecord(f"must be {low} to {high}", field=name, value=value)
    return value


def _numbers(item: Mapping[str, Any]) -> dict[str, Any]:
    ranges = {"n": (1, 1024), "attempt": (1, 1000), "http_status": (0, 999), "queue_ms": (0, 86_400_000)}
    return {name: whole_number(item[name], name, *r) for name, r in ranges.items() if item.get(name) is not None}


def _flag(item: Mapping[str, Any], name: str) -> bool | None:
    value = item.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRecord("must be true or false", field=name, value=value)
    return value


def _tools(item: Mapping[str, Any]) -> tuple[str, ...]:
    value = item.get("tools")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise BadRecord(f"must be a list of at most {MAX_TOOLS} names", field="tools")
    return tuple(text_field({"tools": name}, "tools") for name in value)


def _ratio(item: Mapping[str, Any]) -> Decimal | None:
    value = item.get("repeat_ratio")
    if value is None:
        return None
    found = _decimal(value, "repeat_ratio")
    if not 0 <= found <= 1:
        raise BadRecord("must be 0 to 1", field="repeat_ratio", value=value)
    return found


def _decimal(value: Any, name: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadRecord("must be a number", field=name, value=value)
    try:
        found = Decimal(str(value))
    except DecimalException as error:
        raise BadRecord("is not a number", field=name, value=value) from error
    if not found.is_finite() or abs(found) >= Decimal("1e15") or found.as_tuple().exponent < -30:  # type: ignore[operator]
        raise BadRecord("is not a finite number of ordinary size", field=name, value=value)
    return found


def _sketch(item: Mapping[str, Any]) -> tuple[int, ...]:
    value = item.get("prefix_sketch")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > 256:
        raise BadRecord("must be a list of at most 256 whole numbers", field="prefix_sketch")
    return tuple(whole_number(part, "prefix_sketch", 0, 2**63 - 1) for part in value)


def _cost(item: Mapping[str, Any]) -> Money | None:
    if item.get("vendor_cost") is None:
        return None
    cost = _object(item, "vendor_cost")
    amount = cost.get("amount")
    if isinstance(amount, float):
        raise BadRecord("must be a decimal in quotes", field="vendor_cost.amount", value=amount, hint='send "0.0123"')
    try:
        return Money(_decimal(amount, "vendor_cost.amount"), text_field(cost, "currency", field="vendor_cost.currency"))
    except BadRecord:
        raise
    except BadInput as error:
        raise BadRecord(error.message, field=f"vendor_cost.{error.field}", value=error.value) from error
