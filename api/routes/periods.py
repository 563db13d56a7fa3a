"""Closed months and statements. Closing a month is audited under the token's name."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import RowsDep, parse_by, parse_time
from api.schemas.errors import error_responses
from api.schemas.periods import MONTH, Idle, PeriodClosedOut, PeriodCloseIn, PeriodsOut, StatementOut
from api.schemas.types import CostBasis
from api.tenancy import require_all_tenants
from control.statement import KEYS, close_period
from control.statement import statement as make_statement
from control.statement_view import check_row, period_row, statement_view
from models.period_repo import closed_periods
from models.quality_repo import freshness

reads = router("read", tags=["cost"])
writes = router("operate", tags=["cost"])
Month = Annotated[str, Query(pattern=MONTH, description="A month of the reporting zone.", examples=["2026-07"])]
By = Annotated[str, Query(max_length=200, description=f"Keys, separated by commas: {', '.join(KEYS)}.")]
AsOf = Annotated[str | None, Query(max_length=40, description="As known then.", json_schema_extra={"format": "date-time"})]


@reads.get("/v1/ledger/periods", response_model=PeriodsOut)
def periods(caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Closed months, oldest first."""
    require_all_tenants(caller, "the money of whole months")
    return {"periods": [period_row(period) for period in closed_periods(connection)]}


@reads.get("/v1/ledger/statement", response_model=StatementOut)
def statement(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, rows: RowsDep, month: Month,
    by: By = "org,team", basis: CostBasis = "allocation", idle: Idle = "apart", as_of: AsOf = None,
) -> dict[str, Any]:  # fmt: skip
    """A month's cost as it stood when it was closed (an open one: as it is now), and corrections of closed months before it."""
    require_all_tenants(caller, "a statement of the whole platform")
    found = make_statement(
        connection, _first_day(month), parts.settings.zone, parts.now(), by=parse_by(by, KEYS), basis=basis, idle=idle,
        as_of=parse_time(as_of, "as_of") if as_of else None,
    )  # fmt: skip
    view = statement_view(found)
    meta = {
        "basis": basis,
        "freshness": freshness(connection),
        "window_start": found.window.start,
        "window_end": found.window.end,
    }
    return {**view, "rows": rows.of(view["rows"]), "total_rows": len(view["rows"]), "meta": meta}


@writes.post("/v1/ledger/periods", response_model=PeriodClosedOut, responses=error_responses(409, 413, 422))
def close(body: PeriodCloseIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Close a month: its statement stays, later changes are posted in the next open month's. 422: something is in the way."""
    require_all_tenants(caller, "the close of a month")
    check = close_period(
        connection, _first_day(body.month), parts.settings.zone, by=caller.name, reason=body.reason, now=parts.now(),
        accept=body.accept, dry_run=body.dry_run,
    )  # fmt: skip
    return check_row(check)


def _first_day(month: str) -> date:
    return date.fromisoformat(f"{month}-01")
