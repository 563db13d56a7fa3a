"""What requests are like: context lengths, repetition, sessions, tools, and prompts that begin alike."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from sqlalchemy import Connection

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import DayWindow, Filters, RowsDep, parse_by
from api.routes.ledger import window_meta
from api.schemas.features import FeaturesOut, ToolGraphOut
from api.tenancy import confine, own_scope, require_all_tenants
from core.windows import Window
from models.access_repo import Principal
from models.feature_figures_repo import FEATURE_FILTERS, FEATURE_KEYS, feature_rows, tool_edges, whole_hours
from models.quality_repo import freshness

routes = router("read", tags=["usage"])
COMPARED_SUMS = ("similar_requests", "shareable_tokens")
COMPARED_FIGURES = ("similar_share", "shareable_share")
By = Annotated[
    str, Query(max_length=200, description="Grouping keys, separated by commas.", examples=["deployment,hour_of_week"])
]


@routes.get("/v1/features", response_model=FeaturesOut, response_model_exclude_unset=True)
def features(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, filters: Filters, rows: RowsDep,
    by: By = "deployment",
) -> dict[str, Any]:  # fmt: skip
    """Features of answered requests, whole hours. Repetition, tools and prompts that begin alike are known of the calls a gateway
    hook sampled: each sum stands beside the requests it is of; unknown is null with a reason."""
    own, keys = _own(caller, filters, "features below a team"), parse_by(by, FEATURE_KEYS)
    found = feature_rows(connection, keys, window, own, zone_name=parts.settings.zone)
    if own_scope(caller) is not None:
        found = [_without_others(row) for row in found]
    return {"rows": rows.of(found), "total_rows": len(found), "meta": _meta(connection, window)}


@routes.get("/v1/tool-graph", response_model=ToolGraphOut)
def tool_graph(
    caller: CallerDep, connection: ConnectionDep, window: DayWindow, filters: Filters, rows: RowsDep
) -> dict[str, Any]:
    """Which tool was called after which within sessions, most frequent first, whole hours."""
    own = _own(caller, filters, "tools below an organisation")
    if "team" in own:
        require_all_tenants(caller, "tools below an organisation")
    found = tool_edges(connection, window, own)
    return {"edges": rows.of(found), "total_rows": len(found), "meta": _meta(connection, window)}


def _own(caller: Principal, filters: dict[str, str], what: str) -> dict[str, str]:
    confined = confine(caller, filters)
    if set(confined) - set(FEATURE_FILTERS) - set(filters):
        require_all_tenants(caller, what)
    return confined


def _without_others(row: dict[str, Any]) -> dict[str, Any]:
    """A tenant does not learn whether others send the same prompts."""
    reasons = {**row["reasons"], **dict.fromkeys(COMPARED_FIGURES, "prompts are compared across tenants")}
    return {**row, **dict.fromkeys((*COMPARED_SUMS, *COMPARED_FIGURES)), "reasons": reasons}


def _meta(connection: Connection, window: Window) -> dict[str, Any]:
    return window_meta(whole_hours(window)) | {"freshness": freshness(connection)}
