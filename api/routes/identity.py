"""Tenants and the ordered rules that say whom a request is charged to: read, try, publish from a time on."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Header, Query, Response

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.errors import PreconditionFailed, PreconditionRequired, TooMany
from api.identity_view import preview_out, resolved_out, version_out
from api.query import DayWindow, RowsDep, parse_by
from api.schemas.errors import error_responses
from api.schemas.identity import (
    AliasesOut,
    PreviewIn,
    PreviewOut,
    RecordTestIn,
    RecordTestOut,
    RulesIn,
    RulesPublished,
    RulesVersionOut,
    RuleVersionsOut,
    TenantsOut,
)
from api.schemas.types import CostBasis
from api.tenancy import confine, require_all_tenants
from control.identity_preview import explain, preview, publish_rules
from control.identity_tenants import tenant_rows, whole_days
from core.errors import BadInput, Conflict
from core.identity import RuleSet, RuleVersion, in_force
from core.identity_codec import decode_rules
from core.windows import Window, require_utc
from models.identity_repo import TENANT_COLUMNS, list_aliases, rule_versions

reads = router("read", tags=["identity"])
writes = router("operate", tags=["identity"])
ETAG = re.compile(r'"(\d{1,9})"')
ETAG_HEADER = {"ETag": {"description": "The newest version's number, quoted.", "schema": {"type": "string"}}}
WITH_ETAG: dict[int | str, dict[str, Any]] = {200: {"headers": ETAG_HEADER}}
LONGEST = timedelta(days=31)
WEEK = timedelta(days=7)
WHAT = "identity rules"
_one_preview = threading.BoundedSemaphore(1)
By = Annotated[str | None, Query(max_length=200, description="Keys of a tenant, separated by commas.", examples=["org,team"])]


@reads.get("/v1/identity/rules", response_model=RulesVersionOut, responses=WITH_ETAG)
def get_rules(parts: PartsDep, caller: CallerDep, connection: ConnectionDep, response: Response) -> dict[str, Any]:
    """The newest version, in force or about to be. Send its `ETag` as `If-Match` when publishing a change of it."""
    require_all_tenants(caller, WHAT)
    versions = rule_versions(connection)
    newest = versions[-1] if versions else None
    response.headers["ETag"] = _etag(newest)
    return version_out(newest, versions, parts.now())


@reads.get("/v1/identity/rules/versions", response_model=RuleVersionsOut)
def get_versions(parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Every published version: who, when, why, from when on."""
    require_all_tenants(caller, WHAT)
    versions, now = rule_versions(connection), parts.now()
    current = in_force(versions, now)
    shown = [version_out(version, versions, now) for version in reversed(versions)]
    return {"versions": shown, "in_force": current.version if current else 0}


@writes.put(
    "/v1/identity/rules", response_model=RulesPublished, responses={**WITH_ETAG, **error_responses(409, 412, 413, 422, 428)}
)
def put_rules(
    body: RulesIn,
    parts: PartsDep,
    caller: CallerDep,
    connection: ConnectionDep,
    response: Response,
    if_match: Annotated[str | None, Header(max_length=64, description="`ETag` of the version the change was made on.")] = None,
) -> dict[str, Any]:
    """Publish the whole set as the next version. Records that finish from `valid_from` on are mapped by it; the past stays."""
    require_all_tenants(caller, WHAT)
    expected = _expected(if_match)
    try:
        made, changed = publish_rules(
            connection, decode_rules(body.rules.plain()), caller.name, body.reason, parts.now(), valid_from=body.valid_from,
            expected_version=expected, restate=body.restate, data_dir=parts.settings.data_dir,
        )  # fmt: skip
    except Conflict as error:
        raise PreconditionFailed(error.message, hint=error.hint) from error
    response.headers["ETag"] = _etag(made)
    return {**version_out(made, rule_versions(connection), parts.now()), "changed": changed}


@reads.post("/v1/identity/preview", response_model=PreviewOut, responses=error_responses(413))
def post_preview(body: PreviewIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """What a set would move, computed from the raw archive; nothing is changed. One at a time."""
    require_all_tenants(caller, WHAT)
    end = require_utc(body.until, "to") if body.until else parts.now()
    window = _window(require_utc(body.since, "from") if body.since else end - WEEK, end)
    with _alone():
        return preview_out(preview(connection, parts.settings.data_dir, _rules(body.rules), window, body.basis))


@reads.post("/v1/identity/test", response_model=RecordTestOut, responses=error_responses(413))
def post_test(body: RecordTestIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Which rules apply to one record, and why the others do not."""
    require_all_tenants(caller, WHAT)
    if body.rules is not None:
        rules = _rules(body.rules)
    else:
        current = in_force(rule_versions(connection), parts.now())
        rules = current.rules if current else RuleSet(default=())
    return resolved_out(explain(connection, rules, body.record, parts.now()))


@reads.get("/v1/identity/tenants", response_model=TenantsOut, response_model_exclude_unset=True)
def tenants(
    caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep, by: By = "org,team,project",
    basis: CostBasis = "allocation",
) -> dict[str, Any]:  # fmt: skip
    """Tenants that finished requests in the UTC days of the window: last seen, requests, cost, and their gateway's names."""
    keys = parse_by(by, tuple(TENANT_COLUMNS))
    found = tenant_rows(connection, keys, window, basis, filters=confine(caller, {}))
    days = whole_days(window)
    return {
        "rows": rows.of(found), "total_rows": len(found), "window_start": days.start, "window_end": days.end, "basis": basis,
    }  # fmt: skip


@reads.get("/v1/identity/aliases", response_model=AliasesOut)
def aliases(
    caller: CallerDep, connection: ConnectionDep, rows: RowsDep,
    history: Annotated[bool, Query(description="With earlier names.")] = False,
) -> dict[str, Any]:  # fmt: skip
    """What gateways call their keys (by hash), teams, users and organisations; `tokenfuse tenants import litellm` reads them."""
    require_all_tenants(caller, "a gateway's names")
    found = [
        {**asdict(one.alias), "source": one.source, "valid_from": one.valid_from, "valid_to": one.valid_to}
        for one in list_aliases(connection, with_history=history)
    ]
    return {"aliases": rows.of(found), "total_rows": len(found)}


def _rules(body: Any) -> RuleSet:
    return decode_rules(body.plain())


def _etag(version: RuleVersion | None) -> str:
    return f'"{version.version if version else 0}"'


def _expected(if_match: str | None) -> int:
    found = ETAG.fullmatch((if_match or "").strip())
    if found is None:
        raise PreconditionRequired(
            "If-Match must hold the ETag of the version the change was made on", hint="read it with GET /v1/identity/rules"
        )
    return int(found[1])


def _window(start: datetime, end: datetime) -> Window:
    if start >= end:
        raise BadInput("must be after `from`", field="to", value=end.isoformat())
    if end - start > LONGEST:
        hint = "`tokenfuse tenants preview` takes up to 100"
        raise BadInput(f"a preview here spans at most {LONGEST.days} days", field="from", value=start.isoformat(), hint=hint)
    return Window(start, end)


@contextmanager
def _alone() -> Iterator[None]:
    if not _one_preview.acquire(blocking=False):
        raise TooMany("another preview is being computed", retry_after_s=5)
    try:
        yield
    finally:
        _one_preview.release()
