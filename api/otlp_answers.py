"""What an OTLP exporter is told: export responses and google.rpc.Status, in the encoding it spoke.

Only 429, 502, 503 and 504 may be sent again (OTLP specification); a nearly full disk is therefore 503 here, not 507.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson
from fastapi import Request, Response
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from api.errors import status_of, tokenfuse_response
from core.errors import BadInput, TokenfuseError, Unavailable

Signal = Literal["traces", "metrics", "logs"]
PROTOBUF, JSON = "application/x-protobuf", "application/json"
RPC_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 413: 8, 415: 3, 429: 8, 500: 13, 503: 14}
MAX_MESSAGE = 500
BAD_REQUEST = b"type.googleapis.com/google.rpc.BadRequest"
_RESPONSES: dict[Signal, tuple[Any, str, str]] = {
    "traces": (ExportTraceServiceResponse, "rejected_spans", "rejectedSpans"),
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points", "rejectedDataPoints"),
    "logs": (ExportLogsServiceResponse, "rejected_log_records", "rejectedLogRecords"),
}


def is_json(request: Request) -> bool:
    return media_type(request) == JSON


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def taken(signal: Signal, rejected: int, why: str, *, as_json: bool) -> Response:
    """200: everything was taken, or all but ``rejected`` items, which are kept aside and must not be sent again."""
    kind, field, json_field = _RESPONSES[signal]
    if as_json:
        part = {"partialSuccess": {json_field: str(rejected), "errorMessage": why[:MAX_MESSAGE]}} if rejected else {}
        return Response(orjson.dumps(part), media_type=JSON)
    answer = kind()
    if rejected:
        setattr(answer.partial_success, field, rejected)
        answer.partial_success.error_message = why[:MAX_MESSAGE]
    return Response(answer.SerializeToString(), media_type=PROTOBUF)


def failed(request: Request, error: TokenfuseError) -> Response:
    """The answer to an error: its HTTP status (retryable ones with Retry-After) and a Status message. In JSON the body is that of
    all other routes with Status' own members beside it."""
    plain = tokenfuse_response(error)
    status = 503 if isinstance(error, Unavailable) and status_of(error) == 507 else plain.status_code
    code, message = RPC_CODES.get(status, 2), str(error)
    if media_type(request) == PROTOBUF:
        body, kind = rpc_status(code, message, error), PROTOBUF
    else:
        body, kind = orjson.dumps({"code": code, "message": message, **orjson.loads(bytes(plain.body))}), JSON
    headers = {name: value for name, value in plain.headers.items() if name in ("retry-after", "www-authenticate")}
    return Response(body, status_code=status, headers=headers, media_type=kind)


def rpc_status(code: int, message: str, error: TokenfuseError) -> bytes:
    """google.rpc.Status {1 code, 2 message, 3 details}, with a google.rpc.BadRequest naming the field where there is one. Written
    by hand: three fields are not worth a package of Google's messages."""
    body = b"\x08" + bytes([code]) + _field(2, message.encode("utf-8", "replace"))
    if isinstance(error, BadInput) and error.field:
        violation = _field(1, error.field.encode("utf-8", "replace")) + _field(2, error.message.encode("utf-8", "replace"))
        body += _field(3, _field(1, BAD_REQUEST) + _field(2, _field(1, violation)))
    return body


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size, length = len(data), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data
