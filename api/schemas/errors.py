"""The one error body, and how it is documented on every route."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    code: str = Field(description="Stable and machine-readable.", examples=["bad_input"])
    message: str = Field(examples=["time has no zone"])
    hint: str = Field(description="What to do; may be empty.", examples=["send an offset such as Z"])
    field: str | None = Field(None, description="The field at fault.", examples=["from"])
    where: str | None = Field(None, description="query, body, or the line of it.", examples=["query"])


class ErrorOut(BaseModel):
    error: ErrorDetail


MEANING: dict[int, str] = {
    400: "The request is wrong; `field` and `where` say what.",
    401: "No valid token.",
    403: "The token lacks the scope, or the thing is another tenant's.",
    404: "No such thing.",
    409: "The thing is in a state that forbids this.",
    412: "It was changed since you read it; read it again.",
    413: "The body is too large, packed or unpacked.",
    415: "The body's type or packing is not taken.",
    422: "Understood and refused by a rule.",
    428: "The change must say on what state it was made (If-Match).",
    429: "Too many at once; see Retry-After.",
    500: "An unexpected fault; it was logged.",
    503: "Not available now; see Retry-After.",
    507: "The log's disk is nearly full; nothing was taken; see Retry-After.",
}
ERROR_REF = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorOut"}}}
RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}}}


COMMON = (400, 401, 403, 429, 500, 503)
"""What any route behind a token may answer."""


def error_responses(*statuses: int, of_text_route: bool = False) -> dict[int | str, dict[str, Any]]:
    """OpenAPI ``responses`` for these statuses. A route that answers text must be told that its errors are JSON."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        body: dict[str, Any] = {"content": ERROR_REF} if of_text_route else {"model": ErrorOut}
        found[status] = {**body, "description": MEANING[status]}
        if status in (429, 503, 507):
            found[status]["headers"] = RETRY_AFTER
    return found
