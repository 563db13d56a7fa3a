"""How the fleet works: lengths of requests over time, and how well each deployment's engines are used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import MAX_NAME, NAME_PATTERN, DayWindow, RowsDep
from api.routes.ledger import window_meta
from api.routes.usage import whole_minutes
from api.schemas.fleet import EfficiencyOut, HeatMapOut
from api.tenancy import confine, require_all_tenants
from models.efficiency_repo import efficiency_rows
from models.heat_map_repo import heat_map
from models.quality_repo import freshness

routes = router("read", tags=["fleet"])
Place = Annotated[str | None, Query(max_length=3 * MAX_NAME, pattern=NAME_PATTERN, description="CLUSTER/NAMESPACE/MODEL.")]


@routes.get("/v1/heat-map", response_model=HeatMapOut)
def lengths_over_time(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow,
    kind: Literal["input", "output"] = "input",
    axis: Literal["hour", "hour_of_day", "day"] = "hour_of_day",
    deployment: Place = None,
    org: Annotated[str | None, Query(max_length=MAX_NAME, pattern=NAME_PATTERN)] = None,
) -> dict[str, Any]:  # fmt: skip
    """Requests and tokens by hour and length, and P90 / P50 of the lengths. Requests without counts are not in it."""
    filters = confine(caller, {} if org is None else {"org": org})
    if set(filters) - {"org"}:
        require_all_tenants(caller, "the length of requests, but for an organisation,")
    place = {} if deployment is None else {"deployment": deployment}
    found = heat_map(connection, kind, axis, window, filters | place, zone_name=parts.settings.zone)
    meta = window_meta(window) | {"freshness": freshness(connection)}
    return {"cells": found.cells, "lengths": found.lengths, "whole": found.whole, "meta": meta}


@routes.get("/v1/efficiency", response_model=EfficiencyOut, response_model_exclude_unset=True)
def efficiency(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep,
    step: Literal["minute", "hour", "day", "none"] = "hour",
    deployment: Place = None,
) -> dict[str, Any]:  # fmt: skip
    """KV use, prefix hits, batching, prefill and decode, preemptions, memory and power of each deployment; `step=none`: all of
    the time together."""
    require_all_tenants(caller, "the efficiency of engines")
    whole_minutes(window)
    place = {} if deployment is None else {"deployment": deployment}
    chosen = None if step == "none" else step
    found = efficiency_rows(connection, chosen, window, place, zone_name=parts.settings.zone)
    meta = window_meta(window) | {"freshness": freshness(connection)}
    return {"rows": rows.of(found), "total_rows": len(found), "meta": meta}
