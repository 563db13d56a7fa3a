"""The audit trail."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, router
from api.query import Page
from api.schemas.reads import AuditsOut, AuditVerdictOut
from api.tenancy import require_all_tenants
from models.audit_repo import list_audit, verify_chain

routes = router("read", tags=["trust"])


@routes.get("/v1/audit", response_model=AuditsOut)
def audit(caller: CallerDep, connection: ConnectionDep, page: Page) -> dict[str, Any]:
    """Who did what, newest first: each record carries the hash of the one before it."""
    require_all_tenants(caller, "the audit trail")
    records = [asdict(record) for record in list_audit(connection, page.limit, page.before)]
    more = len(records) == page.limit and records[-1]["seq"] > 1
    return {"records": records, "next": records[-1]["seq"] if more else None}


@routes.get("/v1/audit/verify", response_model=AuditVerdictOut)
def verify(
    caller: CallerDep,
    connection: ConnectionDep,
    anchor: Annotated[
        str | None,
        Query(pattern="^[0-9a-f]{64}$", description="A hash noted earlier; shows a cut-off tail, which the chain cannot."),
    ] = None,
) -> dict[str, Any]:
    """Walks the whole chain and names the first broken record."""
    require_all_tenants(caller, "the audit trail")
    return asdict(verify_chain(connection, anchor))
