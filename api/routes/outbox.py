"""What waits to be sent, what was given up and why, and sending it again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.schemas.errors import error_responses
from api.schemas.outbox import EffectsOut, ResendIn, ResentOut
from api.tenancy import require_all_tenants
from control.dead_letters import resend
from models.outbox_repo import list_effects

reads = router("read", tags=["incidents"])
writes = router("operate", tags=["incidents"])


@reads.get("/v1/outbox", response_model=EffectsOut)
def outbox(
    caller: CallerDep, connection: ConnectionDep,
    state: Annotated[Literal["pending", "done", "failed"] | None, Query(description="Only those in this state.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most effects to return.")] = 100,
) -> dict[str, Any]:  # fmt: skip
    """Messages and actions, newest first. `failed` ones were given up: dead letters."""
    require_all_tenants(caller, "the outbox")
    return {"effects": list_effects(connection, state, limit)}


@writes.post("/v1/outbox/{effect_id}/resend", response_model=ResentOut, responses=error_responses(404, 413))
def send_again(
    effect_id: Annotated[int, Path(ge=1, le=2**62)], body: ResendIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep
) -> dict[str, Any]:
    """Try one that was given up again, with the same key."""
    require_all_tenants(caller, "the outbox")
    return resend(connection, effect_id, caller.name, body.reason, parts.now())
