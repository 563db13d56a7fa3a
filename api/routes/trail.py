"""The audit trail and the quality of the data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, router
from api.query import DayWindow, Page, RowsDep
from api.routes.ledger import window_meta
from api.schemas.reads import AuditsOut, AuditVerdictOut, QualityOut
from api.tenancy import require_all_tenants
from models.audit_repo import list_audit, verify_chain
from models.quality_repo import data_faults, freshness, quarantine_counts

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


@routes.get("/v1/quality", response_model=QualityOut, response_model_exclude_unset=True)
def quality(caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep) -> dict[str, Any]:
    """What makes the numbers less true: records not taken, by reason, and faults such as scrape gaps."""
    require_all_tenants(caller, "the quality of the data")
    faults, total = data_faults(connection, window, rows.limit)
    return {
        "quarantined": [asdict(one) for one in quarantine_counts(connection, window)],
        "faults": [asdict(fault) for fault in faults],
        "faults_total": total,
        "meta": window_meta(window) | {"freshness": freshness(connection)},
    }
