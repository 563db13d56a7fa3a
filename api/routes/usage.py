"""Metered usage, and how much of the engines' work it explains."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import DayWindow, Filters, RowsDep, parse_by
from api.routes.ledger import window_meta
from api.schemas.reads import CoverageOut, UsageOut
from api.tenancy import confine, require_all_tenants
from core.errors import BadInput
from core.windows import Window, floor_time
from models.identity_repo import with_key_alias
from models.quality_repo import freshness
from models.usage_repo import COVERAGE_KEYS, USAGE_KEYS, coverage_rows, usage_rows

routes = router("read", tags=["usage"])
MINUTE = timedelta(minutes=1)
REASONS_UP_TO = timedelta(days=62)
Reasons = Annotated[
    bool | None,
    Query(description="Whether to look for the reasons of the difference; left out: for up to 62 days."),
]
By = Annotated[str | None, Query(max_length=200, description="Grouping keys, separated by commas; one time key at most.")]


@routes.get("/v1/usage", response_model=UsageOut, response_model_exclude_unset=True)
def usage(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, filters: Filters, rows: RowsDep,
    by: By = None,
) -> dict[str, Any]:  # fmt: skip
    """Requests and tokens by the keys asked for. Missing usage counts requests, never zero tokens as a fact."""
    whole_minutes(window)
    found = usage_rows(
        connection, parse_by(by, USAGE_KEYS), window, confine(caller, filters), zone_name=parts.settings.zone
    )  # fmt: skip
    meta = window_meta(window) | {"freshness": freshness(connection)}
    return {"rows": with_key_alias(connection, rows.of(found)), "total_rows": len(found), "meta": meta}


@routes.get("/v1/coverage", response_model=CoverageOut, response_model_exclude_unset=True)
def coverage(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep, by: By = "deployment",
    reasons: Reasons = None,
) -> dict[str, Any]:  # fmt: skip
    """Engine tokens against gateway tokens and the reasons for the difference (null: not looked for)."""
    require_all_tenants(caller, "coverage")
    whole_minutes(window)
    looked_for = window.duration <= REASONS_UP_TO if reasons is None else reasons
    keys = parse_by(by, COVERAGE_KEYS)
    found = coverage_rows(connection, keys, window, zone_name=parts.settings.zone, with_reasons=looked_for)
    meta = window_meta(window) | {"freshness": freshness(connection)}
    return {"rows": rows.of(found), "total_rows": len(found), "meta": meta}


def whole_minutes(window: Window) -> None:
    """Raises BadInput for a window that cuts a minute: usage is kept by the minute."""
    for field, at in (("from", window.start), ("to", window.end)):
        if floor_time(at, MINUTE) != at:
            raise BadInput("must be a whole minute", where="query", field=field, value=at.isoformat())
