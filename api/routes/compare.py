"""Own engines or a vendor, and tokens without a price."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import NAME_PATTERN, DayWindow, RowsDep
from api.schemas.compare import By, CompareOut, UnpricedOut
from api.tenancy import require_all_tenants
from control.compare import compare_with_vendors
from core.errors import BadInput
from models.quality_repo import freshness
from models.unpriced_repo import unpriced_rows, unpriced_tokens

routes = router("read", tags=["cost"])
Against = Annotated[
    str,
    Query(max_length=400, pattern=NAME_PATTERN, description="VENDOR/MODEL, several separated by commas; empty: as people said."),
]
MOST_AGAINST = 10


@routes.get("/v1/compare", response_model=CompareOut, response_model_exclude_unset=True)
def compare(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep,
    by: By = "model", against: Against = "",
) -> dict[str, Any]:  # fmt: skip
    """Own tokens beside the same tokens at vendors' list prices then in force, GPU types as measured, the field's formulas
    apart."""
    require_all_tenants(caller, "the cost of whole models")
    found = compare_with_vendors(
        connection, window, by=by, against=_targets(against), order=parts.settings.vendor_price_order
    )  # fmt: skip
    every = found["rows"]
    meta = {"basis": "allocation", "freshness": freshness(connection)}
    return {**found, "rows": rows.of(every), "total_rows": len(every), "meta": meta}


@routes.get("/v1/unpriced", response_model=UnpricedOut)
def unpriced(caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep) -> dict[str, Any]:
    """Tokens of closed quarter hours without a price, most first: why, and which alias, list or rate would fill the hole."""
    require_all_tenants(caller, "what has no price")
    found = unpriced_rows(connection, window)
    meta = {"freshness": freshness(connection), "window_start": window.start, "window_end": window.end}
    return {"rows": rows.of(found), "total_rows": len(found), "tokens": sum(map(unpriced_tokens, found)), "meta": meta}


def _targets(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        vendor, slash, model = part.partition("/")
        if not (vendor and slash and model):
            hint = "for example deepseek/deepseek-chat"
            raise BadInput("is not VENDOR/MODEL", where="query", field="against", value=part, hint=hint)
        found.append((vendor, model))
    if len(found) > MOST_AGAINST:
        raise BadInput(f"names more than {MOST_AGAINST} models", where="query", field="against", value=len(found))
    return found
