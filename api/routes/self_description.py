"""What machines read of the API itself: Prometheus metrics and the OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api.deps import CallerDep, PartsDep, router
from api.schemas.errors import COMMON, error_responses
from api.tenancy import require_all_tenants

routes = router("read", tags=["self-description"])
TEXT: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text format."}


@routes.get("/metrics", response_class=PlainTextResponse, responses={200: TEXT, **error_responses(*COMMON, of_text_route=True)})
def metrics(parts: PartsDep, caller: CallerDep) -> Response:
    """Unit costs, burn, breakers, coverage, freshness, guards and the process's own counters. Unknown is absent, never 0."""
    require_all_tenants(caller, "the metrics of the platform")
    return Response(generate_latest(parts.telemetry.registry), media_type=CONTENT_TYPE_LATEST)


@routes.get("/openapi.json", response_model=dict[str, Any])
def openapi(request: Request) -> Any:
    """This API as an OpenAPI document."""
    return request.app.openapi()
