"""The process's own counters, and the outermost layer that times requests and turns an unexpected fault into a plain 500."""

from __future__ import annotations

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import internal_response

LOG = logging.getLogger("tokenfuse.api")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Telemetry:
    """Metrics of this process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.ingest_records = Counter(
            "tokenfuse_ingest_records", "Usage records received, by verdict.", ["verdict"], registry=self.registry
        )
        self.otlp_items = Counter(
            "tokenfuse_otlp_items", "Spans, log records and points received, by what became of them.", ["signal", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.sign_in_failures = Counter("tokenfuse_sign_in_failures", "Requests without a valid token.", registry=self.registry)
        self.latency = Histogram(
            "tokenfuse_http_request_duration_seconds",
            "Time to answer, by route and status class; waits of the policy long poll are not included.",
            ["method", "route", "status"],
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        for verdict in ("accepted", "duplicate", "quarantined"):
            self.ingest_records.labels(verdict)


class Instrument:
    """ASGI middleware. A route label comes from the route table, never from the caller's path: its values are bounded."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        started_s = time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"cache-control", b"no-store"),
                    (b"x-content-type-options", b"nosniff"),
                ]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            LOG.exception("unexpected fault: %s %s", scope["method"], _route(scope))
            if status == 0:
                status = 500
                await internal_response()(scope, receive, send)
        finally:
            self._observe(scope, status, time.perf_counter() - started_s)

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        if status == 401:
            self._telemetry.sign_in_failures.inc()
        route = _route(scope)
        if route != "/v1/policy":
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._telemetry.latency.labels(method, route, f"{status // 100}xx").observe(seconds)


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "unmatched")
