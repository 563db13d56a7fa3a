"""OpenAPI of the ingest bodies, written by hand: the records are decoded by ``core.usage_codec``, never by per-record models."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from core.tokens import MAX_TOKENS, TOKEN_FIELDS
from core.usage import MAX_ID, MAX_NAME, SCHEMA, SERVICE_TIERS, STATUSES, USAGE_SOURCES
from core.usage_codec import DEPLOYMENT_KEYS, REQUIRED, TENANT_KEYS

Schema = dict[str, Any]


class VerdictOut(BaseModel):
    index: int = Field(description="Position of the record in the batch, from 0.")
    request_id: str = Field(description="Empty when the record's was not readable.")
    verdict: Literal["accepted", "duplicate", "quarantined"]
    field: str | None = None
    reason: str | None = None


class IngestOut(BaseModel):
    """Every accepted record is on disk when this is answered."""

    accepted: int
    duplicate: int
    quarantined: int
    verdicts: list[VerdictOut] = Field(description="One a record, in order.")


def _name(longest: int = MAX_NAME) -> Schema:
    return {"type": "string", "maxLength": longest}


def _names(keys: tuple[str, ...], required: list[str]) -> Schema:
    found: Schema = {"type": "object", "properties": {key: _name() for key in keys}, "additionalProperties": False}
    return found | ({"required": required} if required else {})


TIME: Schema = {"type": "string", "format": "date-time", "description": "RFC 3339 with an offset."}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_TOKENS}
USAGE_RECORD: Schema = {
    "type": "object",
    "required": list(REQUIRED),
    "properties": {
        "schema": {"type": "string", "const": SCHEMA},
        "request_id": {"type": "string", "minLength": 1, "maxLength": MAX_ID, "description": "Idempotency key."},
        "started_at": TIME,
        "first_token_at": TIME,
        "finished_at": TIME,
        "deployment": _names(DEPLOYMENT_KEYS, ["model_id"]),
        "tenant": _names(TENANT_KEYS, []),
        "tokens": {
            "type": "object",
            "description": "Disjoint input buckets; output_reasoning is a part of output.",
            "properties": dict.fromkeys(TOKEN_FIELDS, COUNT),
            "additionalProperties": False,
        },
        "usage_source": {"type": "string", "enum": list(USAGE_SOURCES)},
        "status": {"type": "string", "enum": list(STATUSES)},
        "service_tier": {"type": "string", "enum": list(SERVICE_TIERS)},
        "requested_model": _name(),
        "http_status": {"type": "integer", "minimum": 0, "maximum": 999},
        "finish_reason": _name(),
        "stream": {"type": "boolean"},
        "n": {"type": "integer", "minimum": 1},
        "attempt": {"type": "integer", "minimum": 1},
        "operation_id": _name(MAX_ID),
        "ends_operation": {"type": "boolean", "description": "False when another attempt of the same operation followed."},
        "provider": _name(),
        "raw": {"type": "object", "description": "The source's own usage object; texts are dropped."},
    },
}
EXAMPLE: list[Schema] = [
    {
        "schema": SCHEMA,
        "request_id": "chatcmpl-1:chat",
        "started_at": "2026-11-30T12:00:00Z",
        "first_token_at": "2026-11-30T12:00:00.4Z",
        "finished_at": "2026-11-30T12:00:03Z",
        "deployment": {"cluster": "default", "namespace": "default", "model_id": "llama-3.1-8b"},
        "tenant": {"org": "acme", "team": "search"},
        "tokens": {"input_uncached": 812, "input_cache_read": 128, "output": 140},
    }
]
NDJSON: Schema = {"schema": {"type": "string", "description": "One JSON object a line."}}


def ingest_body(record: Schema, example: Any) -> Schema:
    """OpenAPI ``requestBody`` of a batch: a JSON array of ``record``, one record, or NDJSON."""
    batch = {"oneOf": [{"type": "array", "items": record}, record]}
    content = {"application/json": {"schema": batch, "example": example}, "application/x-ndjson": NDJSON}
    return {"requestBody": {"required": True, "content": content, "description": "`Content-Encoding: gzip` is taken."}}


LITELLM_PAYLOAD: Schema = {
    "type": "object",
    "description": "LiteLLM's standard logging payload, as its `generic_api` callback posts it.",
    "required": ["call_type", "startTime", "endTime"],
    "properties": {
        "id": {"type": "string"},
        "litellm_call_id": {"type": "string"},
        "call_type": {"type": "string"},
        "startTime": {"type": "number"},
        "endTime": {"type": "number"},
        "model": {"type": "string"},
        "metadata": {"type": "object"},
    },
}
LITELLM_EXAMPLE: list[Schema] = [
    {
        "id": "chatcmpl-1",
        "litellm_call_id": "23cb4ae2-fc12-4930-bd7d-8ab137e335f5",
        "call_type": "acompletion",
        "status": "success",
        "startTime": 1796066298.5,
        "endTime": 1796066298.6,
        "model": "hosted_vllm/llama-3.1-8b",
        "custom_llm_provider": "hosted_vllm",
        "prompt_tokens": 24,
        "completion_tokens": 12,
        "metadata": {"user_api_key_team_id": "search", "user_api_key_org_id": "acme"},
    }
]
