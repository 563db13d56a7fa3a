"""Format ``openai-log``: JSON lines of what an OpenAI-compatible API answered, one call a line.

``{"started_at", "finished_at", "first_token_at"?, "request"?: {model, stream, n, user, ...}, "status_code"?, "error"?,
"response": {...} | "chunks": [...] | "body": "data: {...}"}`` with identity at the top (``key_id``, ``user``, ``team``, ``org``,
``session_id``, ``trace_id``, ``gateway_id``). Times are ISO with a zone or epoch seconds. Answers of chat, completions,
responses, embeddings, Anthropic messages and Ollama are told apart by their own shape; a stream is its chunks, or its
server-sent events as text. A stream without usage is "missing", one without an end was left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO

import orjson

from core.errors import BadRecord
from core.texts import without_texts
from core.tokens import TokenCounts
from core.usage import MAX_ID, SERVICE_TIERS, Deployment, Status, TenantPath, UsageRecord
from core.usage_objects import stream_usage, tokens_from_usage
from core.vendor_place import SELF_HOSTED
from ingest.usage.litellm import instant, label, obj
from ingest.usage.litellm_call import short_id
from ingest.usage.reading import json_items
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row, pool_of, prepare
from ingest.usage.traces import TraceRows, label_bytes

Object = Mapping[str, Any]
ENDS = ("finish_reason", "stop_reason", "done_reason")
LAST_EVENTS = frozenset({"message_stop", "response.completed", "response.incomplete"})
FAILED_EVENTS = frozenset({"error", "response.failed"})
REFUSED_CODES = frozenset({401, 403, 429})


class OpenAiLog:
    def looks_like(self, head: bytes) -> bool:
        return b'"started_at"' in head and (b'"response"' in head or b'"chunks"' in head or b'"body"' in head)

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        place = options.deployment or Deployment("default", "default", "-")
        ids = TraceRows("openai-log", SourceOptions(place, options.tenant))
        for item in json_items(stream):
            if isinstance(item, BadRow):
                yield item
                continue
            try:
                yield prepare(_record(item[1], options, ids), item[0])
            except BadRecord as error:
                yield bad_row(item[0], error, item[1])


def _record(item: Any, options: SourceOptions, ids: TraceRows) -> UsageRecord:
    if not isinstance(item, dict):
        raise BadRecord("must be a JSON object", field="record", value=type(item).__name__)
    for name in ("started_at", "finished_at"):
        if item.get(name) is None:
            raise BadRecord("is required", field=name)
    request, chunks = obj(item, "request"), _chunks(item)
    status = _status(item, chunks)
    usage = stream_usage(chunks)
    counted = usage is not None and status != "refused"
    gateway_id, response_id = label(item, "gateway_id", 10_000), _first_text(chunks, "id")
    n, asked, answered = request.get("n"), label(request, "model"), _first_text(chunks, "model")
    pool = pool_of((answered, asked), options)
    return UsageRecord(
        request_id=_request_id(response_id, gateway_id) or ids.request_id(label_bytes(_identity(item))),
        started_at=instant(item, "started_at"),
        finished_at=instant(item, "finished_at"),
        first_token_at=_first_token(item),
        deployment=pool or _deployment(asked, answered, options),
        tenant=_tenant(item, request, options.tenant),
        tokens=tokens_from_usage(usage) if counted and usage is not None else TokenCounts(),
        usage_source="exact" if counted or status == "refused" else "missing",
        status=status,
        service_tier=_tier(item),
        requested_model=asked,
        http_status=_code(item),
        finish_reason=_finish(chunks),
        stream=_is_stream(item, request),
        n=n if type(n) is int and 1 <= n <= 1024 else 1,
        trace_id=label(item, "trace_id", MAX_ID),
        operation_id=short_id(gateway_id) if gateway_id else "",
        session_id=label(item, "session_id", MAX_ID),
        provider=SELF_HOSTED if pool else label(item, "provider") or SELF_HOSTED,
        raw=without_texts(usage or {}),
    )


def _chunks(item: Object) -> list[Object]:
    """The answer as its pieces: a stream's chunks, the events of a text, or the one object."""
    for name in ("chunks", "response", "body"):
        value = item.get(name)
        if isinstance(value, dict):
            return [value]
        if isinstance(value, list):
            return [chunk for chunk in value if isinstance(chunk, dict)]
        if isinstance(value, str) and value:
            return list(_events(value, name))
    return []


def _events(text: str, field: str) -> Iterator[Object]:
    """Objects of server-sent events (``data: {...}``), of NDJSON (Ollama), or of one JSON text."""
    for line in text.splitlines():
        body = line.removeprefix("data:").strip()
        if not body or body == "[DONE]" or body.startswith(("event:", "id:", ":", "retry:")):
            continue
        try:
            event = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise BadRecord("holds an event that is not JSON", field=field) from error
        if isinstance(event, dict):
            yield event


def _status(item: Object, chunks: list[Object]) -> Status:
    said = item.get("status")
    if said in ("ok", "error", "aborted", "refused"):
        return said  # type: ignore[no-any-return]
    code = _code(item)
    if code == 499:
        return "aborted"
    if code in REFUSED_CODES:
        return "refused"
    failed = item.get("error") or any(chunk.get("type") in FAILED_EVENTS or chunk.get("error") for chunk in chunks)
    if failed or (code is not None and code >= 400):
        return "error"
    is_stream = len(chunks) > 1 or _is_stream(item, obj(item, "request"))
    return "ok" if not is_stream or _has_end(chunks) else "aborted"


def _has_end(chunks: list[Object]) -> bool:
    return bool(_finish(chunks)) or any(chunk.get("type") in LAST_EVENTS or chunk.get("done") is True for chunk in chunks)


def _finish(chunks: list[Object]) -> str:
    for chunk in reversed(chunks):
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        for place in (first, chunk, obj(chunk, "delta")):
            for name in ENDS:
                if isinstance(place.get(name), str):
                    return label(place, name)
    return ""


def _first_text(chunks: list[Object], name: str) -> str:
    """An answer's ``id`` or ``model``, at the top of its first chunk or in its ``message`` or ``response``."""
    for chunk in chunks:
        for place in (chunk, obj(chunk, "response"), obj(chunk, "message")):
            if isinstance(place.get(name), str) and place[name]:
                return label(place, name, 10_000)
    return ""


def _request_id(response_id: str, gateway_id: str) -> str:
    if response_id:
        return f"{short_id(response_id)}:generation"
    return f"gateway:{short_id(gateway_id)}:1" if gateway_id else ""


def _identity(item: Object) -> dict[str, Any]:
    """What tells a call without any id from others; no text of it."""
    names = ("started_at", "finished_at", "key_id", "user", "team", "org", "status_code")
    return {name: item.get(name) for name in names} | {"usage": stream_usage(_chunks(item))}


def _first_token(item: Object) -> datetime | None:
    return instant(item, "first_token_at") if item.get("first_token_at") is not None else None


def _deployment(asked: str, answered: str, options: SourceOptions) -> Deployment:
    place = options.deployment or Deployment("default", "default", "")
    return Deployment(place.cluster, place.namespace, answered or asked or place.model_id)


def _tenant(item: Object, request: Object, given: TenantPath) -> TenantPath:
    return TenantPath(
        org=label(item, "org") or given.org,
        team=label(item, "team") or given.team,
        project=label(item, "project") or given.project,
        user=label(item, "user") or label(request, "user") or given.user,
        key_id=label(item, "key_id") or given.key_id,
    )


def _tier(item: Object) -> Any:
    said = label(item, "service_tier")
    return said if said in SERVICE_TIERS else "P1"


def _code(item: Object) -> int | None:
    code = item.get("status_code")
    return code if type(code) is int and 0 <= code <= 999 else None


def _is_stream(item: Object, request: Object) -> bool:
    said = request.get("stream")
    return said if isinstance(said, bool) else isinstance(item.get("chunks"), list)
