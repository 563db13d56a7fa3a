"""Incidents: what happened, its whole story, and what people say and do about it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.schemas.errors import error_responses
from api.schemas.incidents import AssignIn, IncidentOut, IncidentsOut, NoteIn, StoryOut
from api.tenancy import may_see, require_own
from control import incidents as control
from control.budget_watch import budget_spend
from control.incident_view import get_incident, incident_row, story
from models.access_repo import Principal
from models.incident_repo import list_incidents

reads = router("read", tags=["incidents"])
writes = router("operate", tags=["incidents"])
CHANGE = error_responses(404, 409, 413)
IncidentId = Annotated[int, Path(ge=1, le=2**62)]


@reads.get("/v1/incidents", response_model=IncidentsOut)
def incidents(
    caller: CallerDep, connection: ConnectionDep,
    open_only: Annotated[bool | None, Query(alias="open", description="true: open ones; false: recovered ones.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most incidents to return.")] = 100,
) -> dict[str, Any]:  # fmt: skip
    """Newest first. A breaker's episode, through whatever tiers it goes, is one incident."""
    found = list_incidents(connection, is_open=open_only, limit=None if caller.tenant_scope else limit)
    return {"incidents": [incident_row(one) for one in found if may_see(caller, one.scope)][:limit]}


@reads.get("/v1/incidents/{incident_id}", response_model=StoryOut, responses=error_responses(404))
def one_incident(incident_id: IncidentId, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """The whole story: signal, numbers, decisions, what was sent, people, outcome, money spent after the trip."""
    _mine(connection, caller, incident_id)
    return story(connection, incident_id, parts.now(), budget_spend)


@writes.post("/v1/incidents/{incident_id}/acknowledge", response_model=IncidentOut, responses=CHANGE)
def acknowledge(
    incident_id: IncidentId, body: NoteIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """Somebody has seen it: no reminder follows."""
    _mine(connection, caller, incident_id)
    return incident_row(control.acknowledge(connection, incident_id, caller.name, body.reason, parts.now()))


@writes.post("/v1/incidents/{incident_id}/assign", response_model=IncidentOut, responses=CHANGE)
def assign(
    incident_id: IncidentId, body: AssignIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """Say whose it is."""
    _mine(connection, caller, incident_id)
    return incident_row(control.assign(connection, incident_id, body.assignee, caller.name, body.reason, parts.now()))


@writes.post("/v1/incidents/{incident_id}/comment", response_model=IncidentOut, responses=CHANGE)
def comment(
    incident_id: IncidentId, body: NoteIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """Add to its story."""
    _mine(connection, caller, incident_id)
    return incident_row(control.comment(connection, incident_id, caller.name, body.reason, parts.now()))


def _mine(connection: ConnectionDep, caller: Principal, incident_id: int) -> None:
    """Raises NotFound, or Forbidden for another tenant's incident."""
    require_own(caller, get_incident(connection, incident_id).scope)
