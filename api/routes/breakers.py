"""Breakers: what state they are in, why, and what a person does to them under a name and a reason."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import Path, Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.schemas.breakers import (
    ActionIn,
    BreakerEventsOut,
    BreakerOut,
    BreakersOut,
    EnforceIn,
    PausedOut,
    PauseIn,
    ResetIn,
)
from api.schemas.errors import error_responses
from api.tenancy import may_see, require_all_tenants, require_own
from control import breakers as control
from control.budget_watch import budget_spend
from core.breaker_values import Breaker
from core.errors import BadInput, NotFound
from core.scopes import parse_scope
from models.access_repo import Principal
from models.breaker_repo import list_breakers, list_events
from models.decide_repo import find_budget

reads = router("read", tags=["breakers"])
writes = router("operate", tags=["breakers"])
CHANGE = error_responses(404, 409, 413, 422)
TIERS = {"closed": 0, "warned": 1, "degraded": 2, "open": 3}
BreakerId = Annotated[int, Path(ge=1, le=2**62)]


@reads.get("/v1/breakers", response_model=BreakersOut)
def breakers(parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Every breaker. One in shadow decides and records, and refuses nothing."""
    now = parts.now()
    return {"breakers": [breaker_row(b, now) for b in list_breakers(connection) if may_see(caller, b.scope)]}


@reads.get("/v1/breakers/{breaker_id}/events", response_model=BreakerEventsOut, responses=error_responses(404))
def events(
    breaker_id: BreakerId, caller: CallerDep, connection: ConnectionDep,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most events to return.")] = 100,
) -> dict[str, Any]:  # fmt: skip
    """Its recorded changes, newest first."""
    _mine(connection, caller, breaker_id)
    return {"events": [asdict(event) for event in list_events(connection, limit, breaker_id)]}


@writes.post("/v1/breakers/pause", response_model=PausedOut, responses=CHANGE)
def pause(body: PauseIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Break-glass from the centre: guards let everything pass until then. Left out, `until` ends a running pause."""
    require_all_tenants(caller, "a pause of everything")
    if body.until is not None and body.until <= parts.now():
        raise BadInput("must be in the future", where="body", field="until", value=body.until.isoformat())
    paused = control.pause_all(connection, caller.name, body.reason, body.until, parts.now(), parts.settings.breaker_policy)
    return {"changed": len(paused), "until": body.until}


@writes.post("/v1/breakers/{breaker_id}/approve", response_model=BreakerOut, responses=CHANGE)
def approve(
    breaker_id: BreakerId, body: ActionIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """A named person's review: re-closes a degraded breaker, or signs an open one's re-close at its period's end."""
    now, policy = parts.now(), parts.settings.breaker_policy
    _mine(connection, caller, breaker_id)
    return breaker_row(control.approve(connection, breaker_id, caller.name, body.reason, now, policy), now)


@writes.post("/v1/breakers/{breaker_id}/reset", response_model=BreakerOut, responses=CHANGE)
def reset(breaker_id: BreakerId, body: ResetIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Re-close an open breaker. Without an allowance (a new cap, or extra until a time) it is refused: 422."""
    now, policy = parts.now(), parts.settings.breaker_policy
    allowance = _allowance(connection, body, _mine(connection, caller, breaker_id))
    after = control.reset(connection, breaker_id, caller.name, body.reason, allowance, now, policy, budget_spend)
    return breaker_row(after, now)


@writes.post("/v1/breakers/{breaker_id}/enforce", response_model=BreakerOut, responses=CHANGE)
def enforce(
    breaker_id: BreakerId, body: EnforceIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """Arm it: after 7 days in shadow, or when the person states they read what it would have refused."""
    now, policy = parts.now(), parts.settings.breaker_policy
    _mine(connection, caller, breaker_id)
    read = body.shadow_report_read
    after = control.enforce(connection, breaker_id, caller.name, body.reason, now, policy, read_shadow_report=read)
    return breaker_row(after, now)


@writes.post("/v1/breakers/{breaker_id}/shadow", response_model=BreakerOut, responses=CHANGE)
def shadow(
    breaker_id: BreakerId, body: ActionIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """Disarm it: it goes on deciding and recording, and refuses nothing."""
    now, policy = parts.now(), parts.settings.breaker_policy
    _mine(connection, caller, breaker_id)
    return breaker_row(control.shadow(connection, breaker_id, caller.name, body.reason, now, policy), now)


def _mine(connection: ConnectionDep, caller: Principal, breaker_id: int) -> Breaker:
    """Raises NotFound, or Forbidden for another tenant's breaker."""
    for breaker in list_breakers(connection):
        if breaker.id == breaker_id:
            require_own(caller, breaker.scope)
            return breaker
    raise NotFound(f"there is no breaker {breaker_id}", hint="list them: GET /v1/breakers")


def _allowance(connection: ConnectionDep, body: ResetIn, breaker: Breaker) -> control.AllowanceRequest | None:
    given = body.allowance
    if given is None:
        return None
    if given.currency is not None and breaker.trip is not None:
        stored = find_budget(connection, parse_scope(breaker.scope), breaker.trip.period)
        wanted = given.currency if stored is None else stored.budget.amount.currency
        if wanted != given.currency:
            raise BadInput(f"the budget is in {wanted}", where="body", field="allowance.currency", value=given.currency)
    new_cap, extra = (None if text is None else Decimal(text) for text in (given.new_cap, given.extra))
    return control.AllowanceRequest(new_cap, extra, given.until)


def breaker_row(breaker: Breaker, now: datetime) -> dict[str, Any]:
    """One row of ``GET /v1/breakers``."""
    trip = breaker.trip
    return {
        "id": breaker.id,
        "scope": breaker.scope,
        "phase": breaker.phase,
        "tier": TIERS[breaker.phase],
        "epoch": breaker.epoch,
        "enforced": breaker.enforced,
        "refusing": breaker.refuses(now),
        "since": breaker.since,
        "reason": breaker.reason,
        "paused_until": breaker.paused_until if breaker.paused(now) else None,
        "held": breaker.held,
        "presigned_by": None if breaker.presigned is None else breaker.presigned.actor,
        "trip": trip
        and {
            "period": trip.period,
            "period_end": trip.period_end,
            "spend": trip.spend.amount,
            "cap": trip.cap.amount,
            "currency": trip.cap.currency,
        },
    }
