"""Envoy AI Gateway access log lines that come over OTLP: the JSON format's fields are the log record's attributes.

Names of the token fields are the operator's (``llmRequestCosts`` metadata keys and the EnvoyProxy format); those of the gateway's
own documentation, its default format and its metadata keys are known. A dash stands for absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from core.errors import BadRecord
from core.texts import without_texts
from core.tokens import MAX_TOKENS, TokenCounts
from core.usage import Deployment, Status, TenantPath, UsageRecord
from ingest.otlp.conventions import Attributes, Scalar
from ingest.otlp.genai_record import instant, label, short, whole
from ingest.otlp.items import LogRecord, is_read
from ingest.usage.rows import BadRow, ParsedRow, Prepared, SourceOptions, bad_row, prepare

ABSENT = frozenset({"", "-", "null"})
NAMES: dict[str, tuple[str, ...]] = {
    "input": ("genai_tokens_input", "gen_ai.usage.input_tokens", "llm_input_token", "input_tokens"),
    "output": ("genai_tokens_output", "gen_ai.usage.output_tokens", "llm_output_token", "output_tokens"),
    "cache_read": ("genai_tokens_cached_input", "gen_ai.usage.cache_read.input_tokens", "llm_cached_input_token"),
    "cache_write": (
        "genai_tokens_cache_creation_input", "gen_ai.usage.cache_creation.input_tokens", "llm_cache_creation_input_token",
    ),
    "reasoning": ("genai_tokens_reasoning", "gen_ai.usage.reasoning.output_tokens", "llm_reasoning_token"),
    "asked": ("genai_model_name", "gen_ai.request.model", "x-ai-eg-model", "x-ai-eg-original-model"),
    "served": ("genai_model_name_override", "gen_ai.response.model", "response_model", "genai_response_model"),
    "backend": ("genai_backend_name", "gen_ai.provider.name", "backend_name"),
    "call": ("x-request-id", "request_id"),
    "session": ("session.id", "gen_ai.conversation.id"),
    "user": ("user.id", "enduser.id", "x-user-id"),
}  # fmt: skip
PLAIN = ("start_time", "response_code", "response_flags", "duration", "upstream_host", "tokenfuse.team", "tokenfuse.org")
KEYS = frozenset(PLAIN) | {name for names in NAMES.values() for name in names}
DISCONNECTED, REFUSED_HERE = "DC", frozenset({"RL", "RLSE", "UAEX"})


def is_wanted(key: str) -> bool:
    """Whether a log record's attribute is read: those of the table, and those of access logs."""
    return key in KEYS or is_read(key)


def is_access_log(attributes: Attributes) -> bool:
    """A line of an HTTP request that named a model or counted tokens; health checks and MCP calls do neither."""
    if "response_code" not in attributes or "start_time" not in attributes:
        return False
    return any(_first(attributes, field) is not None for field in ("input", "output", "asked", "served"))


def access_log_row(position: int, record: LogRecord, options: SourceOptions) -> ParsedRow:
    """One line as a usage row."""
    try:
        return envoy_row(position, record.attributes, options)
    except BadRecord as error:
        kept = {name: value for name, value in record.attributes.items() if name in KEYS and not isinstance(value, str)}
        return bad_row(position, error, kept)


def envoy_row(position: int, line: Attributes, options: SourceOptions) -> Prepared | BadRow:
    """One access log object, by whatever door it came. Raises BadRecord naming the field that is wrong."""
    started, duration_ms = _start(line), whole(_given(line, "duration"), "duration", 0, 86_400_000) or 0
    counted = {name: whole(_first(line, name), NAMES[name][0], 0, MAX_TOKENS) for name in NAMES if name in _COUNTS}
    is_missing = counted["input"] is None and counted["output"] is None
    tokens = TokenCounts.from_inclusive(
        counted["input"] or 0, counted["output"] or 0, cache_read=counted["cache_read"] or 0,
        cache_write_5m=counted["cache_write"] or 0, reasoning=counted["reasoning"] or 0,
    )  # fmt: skip
    code = whole(_given(line, "response_code"), "response_code", 0, 999)
    asked = label(_first(line, "asked"), "gen_ai.request.model")
    user, call_id = label(_first(line, "user"), "user.id"), _first(line, "call")
    if call_id is None:
        raise BadRecord("is required", field="x-request-id", hint="add it to the access log's format")
    tenant = options.tenant
    record = UsageRecord(
        request_id=f"gateway:{short(str(call_id))}:1",
        started_at=started,
        finished_at=started + timedelta(milliseconds=duration_ms),
        deployment=_deployment(line, label(_first(line, "served"), "gen_ai.response.model") or asked, options),
        tenant=TenantPath(
            label(_given(line, "tokenfuse.org"), "tokenfuse.org") or tenant.org,
            label(_given(line, "tokenfuse.team"), "tokenfuse.team") or tenant.team,
            tenant.project, user or tenant.user, tenant.key_id,
        ),
        tokens=TokenCounts() if is_missing else tokens,
        requested_model=asked,
        usage_source="missing" if is_missing else "exact",
        status=_status(line, code),
        http_status=code,
        session_id=short(str(_first(line, "session") or "")),
        raw=_raw(line),
    )  # fmt: skip
    return prepare(record, position)._replace(unmapped=())


_COUNTS = frozenset({"input", "output", "cache_read", "cache_write", "reasoning"})


def _given(line: Attributes, name: str) -> Scalar | None:
    value = line.get(name)
    return None if isinstance(value, str) and value in ABSENT else value


def _first(line: Attributes, field: str) -> Scalar | None:
    return next((value for name in NAMES[field] if (value := _given(line, name)) is not None), None)


def _start(line: Attributes) -> datetime:
    value = line.get("start_time")
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise BadRecord("is not an ISO time", field="start_time", hint="use %START_TIME%") from error
    if at.tzinfo is None:
        raise BadRecord("time has no zone", field="start_time", hint="use %START_TIME%")
    return instant(round(at.astimezone(UTC).timestamp() * 1_000_000) * 1000, "start_time")


def _deployment(line: Attributes, model: str, options: SourceOptions) -> Deployment:
    for name in (_given(line, "upstream_host"), _first(line, "backend"), model):
        if name and str(name) in options.pools:
            return options.pools[str(name)]
    place = options.deployment or Deployment("default", "default", "")
    return Deployment(place.cluster, place.namespace, model or place.model_id)


def _status(line: Attributes, code: int | None) -> Status:
    flags = str(line.get("response_flags", "")).split(",")
    if DISCONNECTED in flags or code in (0, 499):
        return "aborted"
    if not REFUSED_HERE.isdisjoint(flags):
        return "refused"
    return "error" if code is not None and code >= 400 else "ok"


def _raw(line: Attributes) -> dict[str, Any]:
    counts: Mapping[str, Any] = {
        name: value for field in _COUNTS for name in NAMES[field] if (value := _given(line, name)) is not None
    }
    backend = _first(line, "backend")
    return without_texts({**counts, "envoy": {"backend": backend, "flags": _given(line, "response_flags")}})
