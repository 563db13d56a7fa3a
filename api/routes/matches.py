"""Which machine a charge of a bill is of: the lists to work through, and a person's word. Changes are audited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Path, Query
from sqlalchemy import Connection

from api.deps import CallerDep, ConnectionDep, Parts, PartsDep, router
from api.query import From, To, parse_window
from api.schemas.errors import error_responses
from api.schemas.matches import MatchChanged, MatchesOut, MatchIn, UndoIn, UnmatchedOut
from api.tenancy import require_all_tenants
from control.charge_join import JoinPlace, MatchOutcome, confirm_match, ignore_resource, undo
from control.unmatched import unmatched
from core.errors import BadInput
from models.join_repo import read_matches

reads = router("read", tags=["bills"])
writes = router("operate", tags=["bills"])
CHANGE = error_responses(404, 409, 413, 422)
WHAT = "which machine a charge is of"


@reads.get("/v1/unmatched", response_model=UnmatchedOut)
def unmatched_lists(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, since: From = None, until: To = None
) -> dict[str, Any]:
    """Charges of machines that are none of the inventory's, and nodes whose hours a bill covers without a charge of theirs, each
    with a suggestion. Without `from` and `to`: of all bills in force."""
    require_all_tenants(caller, WHAT)
    window = parse_window(since, until, parts.now(), timedelta(days=31)) if since or until else None
    return unmatched(connection, parts.now(), window)


@reads.get("/v1/matches", response_model=MatchesOut)
def matches(
    caller: CallerDep,
    connection: ConnectionDep,
    undone: Annotated[bool, Query(description="true: also those taken back.")] = False,
) -> dict[str, Any]:
    """What people said of resources, the oldest first."""
    require_all_tenants(caller, WHAT)
    return {"matches": [asdict(one) for one in read_matches(connection, undone=undone)]}


@writes.post("/v1/matches", response_model=MatchChanged, responses=CHANGE)
def post_match(body: MatchIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Say that a resource is a node, or none of ours. Its charges move at once, and closed quarter hours are closed again."""
    require_all_tenants(caller, WHAT)
    place, now = _place(parts), parts.now()
    if body.node is None:
        if body.valid_from or body.valid_to:
            raise BadInput("an ignored resource has no times", where="body", field="valid_from", hint="leave them out")
        return _changed(
            connection, body.dry_run,
            lambda: ignore_resource(connection, place, body.resource_id, caller.name, now, reason=body.reason),
        )  # fmt: skip
    node = body.node
    return _changed(
        connection, body.dry_run,
        lambda: confirm_match(
            connection, place, body.resource_id, node, caller.name, now,
            reason=body.reason, valid_from=body.valid_from, valid_to=body.valid_to,
        ),
    )  # fmt: skip


@writes.post("/v1/matches/{match_id}/undo", response_model=MatchChanged, responses=CHANGE)
def post_undo(
    match_id: Annotated[int, Path(ge=1, le=2**62)], body: UndoIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """Take a match back."""
    require_all_tenants(caller, WHAT)
    place, now = _place(parts), parts.now()
    return _changed(connection, body.dry_run, lambda: undo(connection, place, match_id, caller.name, now))


def _place(parts: Parts) -> JoinPlace:
    return JoinPlace(parts.settings.data_dir, parts.settings.node_tags)


def _changed(connection: Connection, dry_run: bool, act: Callable[[], MatchOutcome]) -> dict[str, Any]:
    """The same work either way; a dry run is rolled back."""
    with connection.begin_nested() as inner:
        outcome = act()
        if dry_run:
            inner.rollback()
    return {
        "match": asdict(outcome.match),
        "changed": outcome.changed,
        "dry_run": dry_run,
        "windows_to_close_again": outcome.rejoined.marked,
        "moved": [asdict(row) for row in outcome.rejoined.moved],
    }
