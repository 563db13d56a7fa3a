"""What tokens cost: unit costs and the closed ledger, newest or as it stood at a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import DayWindow, Filters, RowsDep, parse_by, parse_time
from api.schemas.reads import LedgerOut, LedgerWindowsOut, UnitCostOut
from api.schemas.types import CostBasis
from api.tenancy import confine, require_all_tenants
from core.errors import BadInput
from core.windows import Window
from models.identity_repo import with_key_alias
from models.ledger_repo import LINE_KEYS, WINDOW_KEYS, ledger_rows, ledger_windows, unit_cost_rows
from models.quality_repo import freshness

routes = router("read", tags=["cost"])
UNIT_KEYS = tuple(key for key in LINE_KEYS if key not in ("kind", "token_kind"))
By = Annotated[str | None, Query(max_length=200, description="Grouping keys, separated by commas.", examples=["deployment,hour"])]
AsOf = Annotated[
    str | None,
    Query(
        max_length=40,
        description="Read the ledger as it stood then; left out: newest.",
        json_schema_extra={"format": "date-time"},
    ),
]


@routes.get("/v1/unit-cost", response_model=UnitCostOut, response_model_exclude_unset=True)
def unit_cost(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, filters: Filters, rows: RowsDep,
    by: By = "deployment", basis: CostBasis = "allocation", as_of: AsOf = None,
) -> dict[str, Any]:  # fmt: skip
    """Cost of a million tokens (input, cached input, output, blended) and of a request, from closed quarter hours."""
    found = unit_cost_rows(
        connection, parse_by(by, UNIT_KEYS), window, basis, as_of=_as_of(as_of),
        filters=confine(caller, of_ledger(filters)), zone_name=parts.settings.zone,
    )  # fmt: skip
    meta = window_meta(window) | {"basis": basis, "freshness": freshness(connection)}
    return {"rows": with_key_alias(connection, rows.of(found)), "total_rows": len(found), "meta": meta}


@routes.get("/v1/ledger", response_model=LedgerOut, response_model_exclude_unset=True)
def ledger(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, filters: Filters, rows: RowsDep,
    by: By = "deployment,kind", as_of: AsOf = None,
) -> dict[str, Any]:  # fmt: skip
    """Ledger lines summed by keys. A tenant's token gets its own lines only: idle and unattributed cost name no tenant."""
    found = ledger_rows(
        connection, parse_by(by, tuple(LINE_KEYS)), window, as_of=_as_of(as_of),
        filters=confine(caller, of_ledger(filters)), zone_name=parts.settings.zone,
    )  # fmt: skip
    meta = window_meta(window) | {"freshness": freshness(connection)}
    return {"rows": with_key_alias(connection, rows.of(found)), "total_rows": len(found), "meta": meta}


@routes.get("/v1/ledger/windows", response_model=LedgerWindowsOut, response_model_exclude_unset=True)
def windows(
    caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep,
    deployment: Annotated[str | None, Query(max_length=400, description="CLUSTER/NAMESPACE/MODEL")] = None, as_of: AsOf = None,
) -> dict[str, Any]:  # fmt: skip
    """Each closed quarter hour with its money, sources, version and detail (weights, over-explained, unattributed)."""
    require_all_tenants(caller, "a window of a deployment")
    found = ledger_windows(connection, window, as_of=_as_of(as_of), filters={"deployment": deployment} if deployment else None)
    return {"windows": rows.of(found), "total_rows": len(found)}


def of_ledger(filters: Mapping[str, str]) -> dict[str, str]:
    """The filters a ledger line has. Raises BadInput for those it has not."""
    for key in filters:
        if key not in LINE_KEYS:
            hint = f"known here: {', '.join(k for k in LINE_KEYS if k not in WINDOW_KEYS or k == 'model_id')}"
            raise BadInput("the ledger is not kept by this key", where="query", field=f"filter.{key}", hint=hint)
    return dict(filters)


def window_meta(window: Window) -> dict[str, Any]:
    return {"window_start": window.start, "window_end": window.end}


def _as_of(text: str | None) -> datetime | None:
    return parse_time(text, "as_of") if text else None
