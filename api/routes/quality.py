"""The quality of the data: what makes the numbers less true, and how much money rests on it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import DayWindow, RowsDep
from api.routes.ledger import window_meta
from api.schemas.quality import DataQualityOut
from api.tenancy import require_all_tenants
from control.data_quality import data_quality
from models.quality_repo import data_faults, freshness, quarantine_counts

routes = router("read", tags=["trust"])


@routes.get("/v1/quality", response_model=DataQualityOut, response_model_exclude_unset=True)
def quality(parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep) -> dict[str, Any]:
    """Every kind of fault with count, place, the money that rests on it and what to do; records not taken, by reason; the faults
    themselves, newest first; and the standing comparison of rollups with the raw archive."""
    require_all_tenants(caller, "the quality of the data")
    faults, total = data_faults(connection, window, rows.limit)
    return {
        **data_quality(connection, window, parts.now()),
        "quarantined": [asdict(one) for one in quarantine_counts(connection, window)],
        "faults": [asdict(fault) for fault in faults],
        "faults_total": total,
        "meta": window_meta(window) | {"freshness": freshness(connection)},
    }
