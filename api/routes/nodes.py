"""What machines cost by the bills: effective GPU-hour rates."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, router
from api.query import DayWindow, RowsDep
from api.schemas.nodes import NodesOut
from api.tenancy import require_all_tenants
from control.node_rates import node_rates
from models.quality_repo import freshness

routes = router("read", tags=["bills"])


@routes.get("/v1/nodes", response_model=NodesOut, response_model_exclude_unset=True)
def nodes(
    caller: CallerDep,
    connection: ConnectionDep,
    window: DayWindow,
    rows: RowsDep,
    by_hour: Annotated[bool, Query(description="true: a row for each UTC hour.")] = False,
) -> dict[str, Any]:
    """What bills in force say machines cost in the UTC hours that begin in the time range: per hour and GPU-hour, by GPU, CPU and
    memory, and the hours in which nothing served."""
    require_all_tenants(caller, "what machines cost")
    found = node_rates(connection, window, by_hour=by_hour)
    meta = {"freshness": freshness(connection), "window_start": window.start, "window_end": window.end}
    return {"rows": rows.of(found), "total_rows": len(found), "meta": meta}
