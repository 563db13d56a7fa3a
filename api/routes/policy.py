"""The signed policy for guards (long poll), and what guards report back."""

from __future__ import annotations

import json
import logging
import re
from typing import Annotated, Any

import orjson
from fastapi import Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from api.deps import CallerDep, ConnectionDep, Parts, PartsDep, router
from api.schemas.errors import error_responses
from api.schemas.policy import GuardReportIn, GuardReportOut, PolicyDocument
from core.errors import NotFound, TokenfuseError, Unavailable
from core.policy import SigningKey, sign
from models.access_repo import Principal
from models.audit_repo import append_audit
from models.database import transaction
from models.guard_repo import guard_seen
from models.policy_repo import PublishedPolicy

LOG = logging.getLogger("tokenfuse.api.policy")
MAX_WAIT_S = 30
ETAG = re.compile(r'^(?:W/)?"(\d{1,19})"$')
ETAG_HEADER = {"ETag": {"description": "The policy's version, quoted.", "schema": {"type": "string"}}}

routes = router("policy", tags=["policy"])


@routes.get(
    "/v1/policy",
    response_model=PolicyDocument,
    responses={
        200: {"headers": ETAG_HEADER},
        304: {"description": "No newer policy within `wait`.", "headers": ETAG_HEADER},
        **error_responses(404),
    },
)
async def get_policy(
    parts: PartsDep,
    caller: CallerDep,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for a newer policy.")] = 0,
    if_none_match: Annotated[str | None, Header(max_length=64, description="ETag of the policy the guard holds.")] = None,
) -> Response:
    """The newest policy, made out to the guard whose name the token bears and signed with that guard's keys.

    With `If-None-Match` it answers as soon as a newer version is published, or 304 after `wait` seconds.
    """
    keys = parts.keys.keys_of(caller.name)
    if not keys:
        raise NotFound(f"no signing key for a guard named {caller.name!r}", hint="register it: `tokenfuse guard add NAME`")
    match = ETAG.match((if_none_match or "").strip())
    held = int(match[1]) if match else None
    await run_in_threadpool(_note_seen, parts, caller, held)
    published = await parts.watch.newer_than(held, wait)
    if published is not None:
        document = _signed(parts, caller.name, published, keys)
        return Response(orjson.dumps(document), media_type="application/json", headers={"ETag": f'"{published.version}"'})
    if held is None or parts.watch.current is None:
        raise Unavailable("no policy was published yet", retry_after_s=2, hint="is the control loop running?")
    return Response(status_code=304, headers={"ETag": f'"{held}"'})


def _signed(parts: Parts, guard: str, published: PublishedPolicy, keys: tuple[SigningKey, ...]) -> dict[str, Any]:
    return sign(published.body_for(guard, parts.settings.policy_on_expiry).canonical(), keys)


def _note_seen(parts: Parts, caller: Principal, held_version: int | None) -> None:
    """A guard must get its policy even while the database is away."""
    try:
        with transaction(parts.engine) as connection:
            guard_seen(connection, caller.name, held_version, parts.now())
    except (TokenfuseError, SQLAlchemyError) as error:
        LOG.warning("guard %s was not noted as seen: %s", caller.name, type(error).__name__)


@routes.post("/v1/guards/report", status_code=202, response_model=GuardReportOut, responses=error_responses(413))
def report(
    report: GuardReportIn, request: Request, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> GuardReportOut:
    """What the guard did since its last report. Refusals, drops and break-glass use go into the audit trail."""
    now = parts.now()
    guard_seen(connection, caller.name, report.policy_version, now)
    # The audit chain takes no floats: their text differs between writers.
    detail = json.loads(report.model_dump_json(exclude_none=True), parse_float=str)
    rules_kept = report.rules_fault and report.note
    noteworthy = report.refused or report.dropped or report.break_glass or report.expired or rules_kept
    if noteworthy:
        append_audit(connection, now, caller.name, "guard.report", f"guard:{caller.name}", detail)
    return GuardReportOut(audited=bool(noteworthy))
