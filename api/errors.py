"""One table from errors to HTTP status, and one body for all of them. No traceback and no secret ever leaves."""

from __future__ import annotations

import logging
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from core.errors import (
    BadInput,
    Conflict,
    DiskFull,
    NotFound,
    Refused,
    TokenfuseError,
    Unavailable,
    UnsplittableCost,
)
from ingest.otlp.items import TooManyItems

LOG = logging.getLogger("tokenfuse.api")


class Unauthenticated(TokenfuseError):
    code = "unauthenticated"


class Forbidden(TokenfuseError):
    code = "forbidden"


class TooLarge(BadInput):
    code = "too_large"


class UnsupportedMedia(BadInput):
    code = "unsupported_media_type"


class PreconditionFailed(Conflict):
    """The thing was changed since the caller read it."""

    code = "precondition_failed"


class PreconditionRequired(TokenfuseError):
    """A change must say on what state it was made."""

    code = "precondition_required"


class TooMany(Unavailable):
    """More at once, or more failures, than this process takes."""

    code = "too_many_requests"


STATUS: tuple[tuple[type[TokenfuseError], int], ...] = (
    (DiskFull, 507),
    (TooMany, 429),
    (Unavailable, 503),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (PreconditionFailed, 412),
    (PreconditionRequired, 428),
    (Conflict, 409),
    (Refused, 422),
    (UnsplittableCost, 422),
    (TooLarge, 413),
    (TooManyItems, 413),
    (UnsupportedMedia, 415),
    (BadInput, 400),
    (TokenfuseError, 500),
)
"""Most specific first."""


def status_of(error: TokenfuseError) -> int:
    return next(status for kind, status in STATUS if isinstance(error, kind))


def error_body(code: str, message: str, hint: str = "", *, field: str = "", where: str = "") -> bytes:
    body: dict[str, Any] = {"code": code, "message": message, "hint": hint}
    if field:
        body["field"] = field
    if where:
        body["where"] = where
    return orjson.dumps({"error": body})


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def tokenfuse_response(error: TokenfuseError) -> Response:
    """The answer to an error raised on purpose."""
    headers: dict[str, str] = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="tokenfuse"'
    field = where = ""
    message = error.message
    if isinstance(error, BadInput):
        field, where = error.field, error.where
        if error.value is not None:
            message = f"{message} (value {str(error.value)[:80]!r})"
    return _json(status_of(error), error_body(error.code, message, error.hint, field=field, where=where), headers)


def internal_response() -> Response:
    return _json(500, error_body("internal", "an unexpected fault; it was logged", "run `tokenfuse doctor`"))


async def _on_tokenfuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, TokenfuseError)
    if isinstance(error, BadInput) and error.field and not error.where:
        error.where = "query" if request.method == "GET" else "body"
    if status_of(error) >= 500:
        LOG.warning("request failed: %s: %s", error.code, error)
    return tokenfuse_response(error)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place, *path = first["loc"]
    if first["type"] == "json_invalid":
        path = []
    hint = f"{len(error.errors()) - 1} more faults in this request" if len(error.errors()) > 1 else ""
    body = error_body("bad_input", str(first["msg"]), hint, field=".".join(map(str, path)), where=str(place))
    return _json(400, body)


HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


async def _on_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTP_CODES.get(error.status_code, "bad_input")
    return _json(error.status_code, error_body(code, str(error.detail)), dict(error.headers or {}))


async def _on_database_down(_request: Request, error: Exception) -> Response:
    LOG.warning("database: %s", type(error).__name__)
    return tokenfuse_response(Unavailable("the database cannot be reached or took too long", hint="run `tokenfuse doctor`"))


async def _on_database_data(_request: Request, error: Exception) -> Response:
    LOG.warning("database refused a value: %s", type(error).__name__)
    return tokenfuse_response(BadInput("a value is outside what can be stored or asked for"))


def install(app: FastAPI) -> None:
    """Register the handlers."""
    app.add_exception_handler(TokenfuseError, _on_tokenfuse)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(OperationalError, _on_database_down)
    app.add_exception_handler(InterfaceError, _on_database_down)
    app.add_exception_handler(PoolTimeout, _on_database_down)
    app.add_exception_handler(DataError, _on_database_data)
