"""The OTLP/HTTP receiver: traces, metrics and logs of OpenTelemetry exporters, protobuf or JSON, gzip or plain.

Spans and log records of model calls become usage records; token metrics are kept beside them as a cross-check; all else is taken
and passed over. An exporter finds the routes under ``/v1/...`` or, with the base endpoint ``.../otlp``, under ``/otlp/v1/...``.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response, Security
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from api.body import Raw, receive_any, unpack_any
from api.deps import BEARER, CallerDep, GuardedRoute, Handler, Parts, PartsDep
from api.errors import UnsupportedMedia
from api.otlp_answers import JSON, PROTOBUF, Signal, failed, is_json, media_type, taken
from api.schemas.otlp import answers, body_of
from core.errors import TokenfuseError, Unavailable
from models.access_repo import Principal


class OtlpRoute(GuardedRoute):
    """Every answer, also a refusal, is in the encoding of the request."""

    required = "ingest"
    reads_own_body = True

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except TokenfuseError as error:
                return failed(request, error)
            except (OperationalError, InterfaceError, PoolTimeout):
                return failed(request, Unavailable("the database cannot be reached or took too long", hint="send it again"))

        return answered


routes = APIRouter(route_class=OtlpRoute, tags=["otlp"], dependencies=[Security(BEARER)])


def _route(signal: Signal) -> dict[str, Any]:
    return {"responses": answers(signal), "openapi_extra": body_of(signal), "status_code": 200}


@routes.post("/v1/traces", **_route("traces"))
@routes.post("/otlp/v1/traces", **_route("traces"))
async def post_traces(request: Request, parts: PartsDep, caller: CallerDep) -> Response:
    """Spans of model calls, by the GenAI conventions of OpenTelemetry (old and new), OpenInference, OpenLLMetry and the Vercel AI
    SDK: each call counts once. Prompts and answers in attributes and events are never read."""
    return await _take("traces", request, parts, caller)


@routes.post("/v1/metrics", **_route("metrics"))
@routes.post("/otlp/v1/metrics", **_route("metrics"))
async def post_metrics(request: Request, parts: PartsDep, caller: CallerDep) -> Response:
    """Token counters and histograms of gateways and SDKs, cumulative or delta: a cross-check of usage records, never money."""
    return await _take("metrics", request, parts, caller)


@routes.post("/v1/logs", **_route("logs"))
@routes.post("/otlp/v1/logs", **_route("logs"))
async def post_logs(request: Request, parts: PartsDep, caller: CallerDep) -> Response:
    """Access log lines of Envoy AI Gateway and GenAI inference events. Bodies are never read."""
    return await _take("logs", request, parts, caller)


async def _take(signal: Signal, request: Request, parts: Parts, caller: Principal) -> Response:
    kind = media_type(request)
    if kind not in (JSON, PROTOBUF):
        raise UnsupportedMedia("unknown encoding", field="content-type", value=kind, hint=f"send {PROTOBUF} or {JSON}")
    with parts.ingest_slot():
        raw = await receive_any(request, parts.settings.max_body_mb, kind)
        return await run_in_threadpool(_taken, signal, parts, caller, raw, as_json=is_json(request))


def _taken(signal: Signal, parts: Parts, caller: Principal, raw: Raw, *, as_json: bool) -> Response:
    body = unpack_any(raw, parts.settings.max_unpacked_mb)
    outcome = parts.otlp.take(signal, body, caller, as_json=as_json)
    counts = {"counted": outcome.counted, "passed_over": outcome.passed_over, "rejected": outcome.rejected}
    for name, count in counts.items():
        parts.telemetry.otlp_items.labels(signal, name).inc(count)
    return taken(signal, outcome.rejected, outcome.why, as_json=as_json)
