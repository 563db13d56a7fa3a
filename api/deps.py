"""What routes are given: the process's parts, the caller, and routers that admit a caller before anything else is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from sqlalchemy import Connection, Engine
from starlette.types import Message

from api.auth import Authenticator
from api.budget_view import Standings
from api.errors import Forbidden, TooLarge, TooMany
from api.guard_keys import KeyRing
from api.otlp_intake import OtlpIntake
from api.policy_watch import PolicyWatch
from api.schemas.errors import COMMON, error_responses
from api.settings import ApiSettings
from api.telemetry import Telemetry
from core.errors import BadInput
from core.ports import EventLog
from ingest.usage.service import UsageIngest
from models.access_repo import Principal
from models.database import transaction

MAX_FORM_BYTES = 256 * 1024
BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="`tf_<id>_<secret>`, made by `tokenfuse token create`. Scopes: ingest, read, operate, policy, admin (all).",
)


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the routes share; made once by ``create_app``."""

    settings: ApiSettings
    engine: Engine
    log: EventLog
    now: Callable[[], datetime]
    auth: Authenticator
    watch: PolicyWatch
    keys: KeyRing
    telemetry: Telemetry
    ingest: UsageIngest
    otlp: OtlpIntake
    standings: Standings
    ingest_slots: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(8))

    @contextmanager
    def ingest_slot(self) -> Iterator[None]:
        """Bounds the memory of ingest: TooMany when all slots are taken."""
        if not self.ingest_slots.acquire(blocking=False):
            raise TooMany("too many usage batches at once", retry_after_s=1, hint="send the batch again")
        try:
            yield
        finally:
            self.ingest_slots.release()


def parts_of(request: Request) -> Parts:
    found: Parts = request.app.state.parts
    return found


def caller_of(request: Request) -> Principal:
    found: Principal = request.state.caller
    return found


def connection_of(request: Request) -> Iterator[Connection]:
    """One transaction for the request: committed when the route returns, rolled back when it raises."""
    with transaction(parts_of(request).engine) as connection:
        yield connection


PartsDep = Annotated[Parts, Depends(parts_of)]
CallerDep = Annotated[Principal, Depends(caller_of)]
ConnectionDep = Annotated[Connection, Depends(connection_of, scope="function")]


async def admit(request: Request, required: str) -> None:
    """Sets ``request.state.caller``. Raises Unauthenticated, TooMany or Forbidden."""
    auth = parts_of(request).auth
    header = request.headers.get("authorization")
    caller = auth.remembered(header)
    if caller is None:
        client = request.client.host if request.client else "unknown"
        caller = await run_in_threadpool(auth.authenticate, header, client)
    if not caller.may(required):
        raise Forbidden(f"this token has no scope {required!r}", hint="make one that has it: `tokenfuse token create`")
    request.state.caller = caller


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GuardedRoute(APIRoute):
    """Admits the caller first: without a token no body is read, no query judged. Unknown query keys are refused, for a
    mistyped filter that is silently ignored gives a wrong number."""

    required = "admin"
    reads_own_body = False

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()
        known = set(_query_names(self.dependant))

        async def guarded(request: Request) -> Response:
            await admit(request, self.required)
            _refuse_unknown_query(request, known)
            if request.method != "GET" and not self.reads_own_body:
                request = await _with_small_body(request)
            return await handler(request)

        return guarded


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (str(parameter.alias) for parameter in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _query_names(inner)


def _refuse_unknown_query(request: Request, known: set[str]) -> None:
    for name in request.query_params:
        if name not in known:
            shown = ", ".join(sorted(known)) or "none"
            raise BadInput("unknown query parameter", where="query", field=name[:80], hint=f"known here: {shown}")


async def _with_small_body(request: Request) -> Request:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise TooLarge(f"the body is larger than {MAX_FORM_BYTES // 1024} KB", where="body")

    async def replay() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, replay)


def router(required: str, *, reads_own_body: bool = False, tags: list[str]) -> APIRouter:
    """A router whose routes need the scope ``required`` (or admin)."""
    kind = type(f"Route_{required}", (GuardedRoute,), {"required": required, "reads_own_body": reads_own_body})
    return APIRouter(route_class=kind, tags=list(tags), dependencies=[Security(BEARER)], responses=error_responses(*COMMON))
