"""How the OTLP routes are documented: the bodies are OpenTelemetry's own messages, named and not repeated."""

from __future__ import annotations

from typing import Any

from api.otlp_answers import JSON, PROTOBUF, Signal
from api.schemas.errors import MEANING, RETRY_AFTER

_MESSAGES: dict[Signal, tuple[str, str, str]] = {
    "traces": ("ExportTraceServiceRequest", "ExportTraceServiceResponse", "resourceSpans"),
    "metrics": ("ExportMetricsServiceRequest", "ExportMetricsServiceResponse", "resourceMetrics"),
    "logs": ("ExportLogsServiceRequest", "ExportLogsServiceResponse", "resourceLogs"),
}
_BINARY = {"type": "string", "format": "binary"}
_RPC_STATUS = {"$ref": "#/components/schemas/ErrorOut"}
"""The error body of all routes; google.rpc.Status' members stand beside it."""
_ERRORS = (400, 401, 403, 413, 415, 429, 500, 503)


def body_of(signal: Signal) -> dict[str, Any]:
    """The request body."""
    request, _, first = _MESSAGES[signal]
    schema = {"type": "object", "title": request, "properties": {first: {"type": "array", "items": {"type": "object"}}}}
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}, PROTOBUF: {"schema": _BINARY}}}}


def answers(signal: Signal) -> dict[int | str, dict[str, Any]]:
    """The answers, in either encoding."""
    _, response, _ = _MESSAGES[signal]
    schema = {"type": "object", "title": response, "properties": {"partialSuccess": {"type": "object"}}}
    found: dict[int | str, dict[str, Any]] = {
        200: {
            "description": f"{response}; `partialSuccess` says how many items were not taken and why. Do not send those again.",
            "content": {JSON: {"schema": schema}, PROTOBUF: {"schema": _BINARY}},
        }
    }
    for status in _ERRORS:
        found[status] = {
            "description": MEANING[status], "content": {JSON: {"schema": _RPC_STATUS}, PROTOBUF: {"schema": _BINARY}},
        }  # fmt: skip
        if status in (429, 503):
            found[status]["headers"] = RETRY_AFTER
    return found
