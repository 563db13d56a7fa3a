"""The HTTP application. ``create_app`` is the only thing others need; `api.server` serves it for cli/."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from fastapi import FastAPI
from prometheus_client import Metric
from sqlalchemy import Engine

from api import errors, openapi
from api.auth import Authenticator
from api.budget_view import Standings
from api.deps import Parts
from api.guard_keys import KeyRing
from api.metrics import Remembered
from api.metrics_view import business_metrics
from api.otlp_intake import OtlpIntake, Pools
from api.policy_watch import PolicyWatch
from api.routes import ROUTERS
from api.schemas.errors import error_responses
from api.settings import ApiSettings
from api.telemetry import Instrument, Telemetry
from core.ports import EventLog
from ingest.usage.intake import build_ingest
from models.access_repo import Principal, verify_token
from models.database import transaction

VERSION = "1"
DESCRIPTION = """
What a self-hosted LLM token costs, who spent it, and the circuit breaker for the budget.

Money is a decimal string with its currency beside it, times are RFC 3339 in UTC, windows are half-open. A number that cannot
be known is null and its reason is beside it. Every answer's `meta` says on what basis its numbers stand.
Errors have one body: `{"error": {"code", "message", "hint", "field"?, "where"?}}`.
"""


def utc_now() -> datetime:
    return datetime.now(UTC)


def create_app(settings: ApiSettings, engine: Engine, log: EventLog, *, now: Callable[[], datetime] = utc_now) -> FastAPI:
    """The application over one database and one log; both stay the caller's to close. Its lifespan runs the policy watch."""
    parts = _parts(settings, engine, log, now)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        parts.watch.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(parts.watch.stop)

    app = FastAPI(
        title="Tokenfuse",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        responses=error_responses(500),
    )
    app.state.parts = parts
    for one in ROUTERS:
        app.include_router(one)
    errors.install(app)
    openapi.correct(app)
    app.add_middleware(Instrument, telemetry=parts.telemetry)
    return app


def _parts(settings: ApiSettings, engine: Engine, log: EventLog, now: Callable[[], datetime]) -> Parts:
    def verify(text: str) -> Principal | None:
        with transaction(engine) as connection:
            return verify_token(connection, text, now())

    def read_metrics() -> list[Metric]:
        with transaction(engine) as connection:
            return business_metrics(connection, standings, now())

    standings = Standings(settings.standings_cache_s, time.monotonic)
    telemetry = Telemetry()
    telemetry.registry.register(Remembered(read_metrics, settings.metrics_cache_s, time.monotonic))
    limit = settings.failed_auth_per_minute
    ingest = build_ingest(engine, log, settings.data_dir, settings.dedupe_horizon, now)
    return Parts(
        settings=settings,
        engine=engine,
        log=log,
        now=now,
        auth=Authenticator(verify, ttl_s=settings.token_cache_s, limit=limit, clock=time.monotonic),
        watch=PolicyWatch(engine),
        keys=KeyRing(settings.guard_keys, settings.guard_keys_file),
        telemetry=telemetry,
        ingest=ingest,
        otlp=OtlpIntake(settings, log, ingest, Pools(engine, now), now),
        standings=standings,
        ingest_slots=threading.BoundedSemaphore(settings.max_ingest_in_flight),
    )
