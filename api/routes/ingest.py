"""Taking usage records in. The body is received on the event loop, judged and appended in a worker thread."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from api.body import Raw, receive, unpack
from api.deps import CallerDep, Parts, PartsDep, router
from api.errors import TooLarge
from api.own_rows import own_only
from api.schemas.errors import error_responses
from api.schemas.usage_in import (
    EXAMPLE,
    LITELLM_EXAMPLE,
    LITELLM_PAYLOAD,
    USAGE_RECORD,
    IngestOut,
    ingest_body,
)
from api.tenancy import own_scope
from core.errors import BadInput
from core.usage import Deployment, TenantPath
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, UsageAdapter
from ingest.usage.service import Verdict
from models.access_repo import Principal

routes = router("ingest", reads_own_body=True, tags=["ingest"])
REFUSALS = error_responses(413, 415, 507)


@routes.post(
    "/v1/usage",
    status_code=202,
    response_model=IngestOut,
    responses=REFUSALS,
    openapi_extra=ingest_body(USAGE_RECORD, EXAMPLE),
)
async def post_usage(request: Request, parts: PartsDep, caller: CallerDep) -> Response:
    """Usage records (`usage/1`) as a JSON array or NDJSON. Safe to send again: a record counts once by `request_id`."""
    return await _take(request, parts, caller, ADAPTERS["usage"], SourceOptions())


@routes.post(
    "/v1/usage/litellm",
    status_code=202,
    response_model=IngestOut,
    responses=REFUSALS,
    openapi_extra=ingest_body(LITELLM_PAYLOAD, LITELLM_EXAMPLE),
)
async def post_litellm(request: Request, parts: PartsDep, caller: CallerDep) -> Response:
    """What LiteLLM's built-in `generic_api` callback posts. Texts are dropped before anything is written."""
    settings = parts.settings
    place = Deployment(settings.default_cluster, settings.default_namespace, "")
    options = SourceOptions(deployment=place, tenant=TenantPath(org=settings.organisation))
    return await _take(request, parts, caller, ADAPTERS["litellm"], options)


async def _take(request: Request, parts: Parts, caller: Principal, adapter: UsageAdapter, options: SourceOptions) -> Response:
    with parts.ingest_slot():
        raw = await receive(request, parts.settings.max_body_mb)
        body = await run_in_threadpool(_accept, parts, caller, raw, adapter, options)
    return Response(body, status_code=202, media_type="application/json")


def _accept(parts: Parts, caller: Principal, raw: Raw, adapter: UsageAdapter, options: SourceOptions) -> bytes:
    text = unpack(raw, parts.settings.max_unpacked_mb)
    rows = _parsed(adapter.rows(BytesIO(text), options), parts.settings.max_records)
    own = own_scope(caller)
    verdicts = parts.ingest.accept(own_only(rows, own), source=f"api:{caller.name}", within=own.parts if own else ())
    return _answer(parts, verdicts)


def _parsed(rows: Iterable[ParsedRow], most: int) -> list[ParsedRow]:
    found: list[ParsedRow] = []
    for row in rows:
        found.append(row)
        if len(found) > most:
            raise TooLarge(f"the body holds more than {most} records", field="body", hint="send smaller batches")
    if found and all(isinstance(row, BadRow) and row.error.field == "line" for row in found):
        first = found[0]
        assert isinstance(first, BadRow)
        raise BadInput(first.error.message, where=f"line {first.position}", field="body", hint="nothing of it was taken")
    return found


def _answer(parts: Parts, verdicts: list[Verdict]) -> bytes:
    counts = {"accepted": 0, "duplicate": 0, "quarantined": 0}
    shown: list[dict[str, str | int]] = []
    for index, verdict in enumerate(verdicts):
        counts[verdict.verdict] += 1
        one: dict[str, str | int] = {"index": index, "request_id": verdict.request_id, "verdict": verdict.verdict}
        if verdict.reason:
            one |= {"field": verdict.field, "reason": verdict.reason}
        shown.append(one)
    for name, count in counts.items():
        parts.telemetry.ingest_records.labels(name).inc(count)
    return orjson.dumps({**counts, "verdicts": shown})
