"""Bills against the ledger: from an invoice's total to the tenants."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, router
from api.query import parse_month
from api.schemas.reconcile import ReconcileOut, View
from api.tenancy import require_all_tenants
from control.bill_reconcile import reconcile as compare
from models.bill_reconcile_repo import billed_periods
from models.quality_repo import freshness

routes = router("read", tags=["cost"])
PeriodText = Annotated[
    str | None,
    Query(
        max_length=7,
        description="A month: billing periods that begin in it; in the usage view what was used in it. Default: the newest.",
        examples=["2026-07"],
    ),
]
CurrencyText = Annotated[str | None, Query(pattern=r"^[A-Z]{3}$", description="One currency; they are never added.")]


@routes.get("/v1/reconcile", response_model=ReconcileOut)
def reconcile(
    caller: CallerDep,
    connection: ConnectionDep,
    period: PeriodText = None,
    currency: CurrencyText = None,
    view: View = "invoice",
) -> dict[str, Any]:
    """The waterfalls of one month by invoice or by use: every step adds up exactly, every difference has a name and a hint."""
    require_all_tenants(caller, "bills")
    known = [scope.first for scope in billed_periods(connection, view)]
    first = parse_month(period, "period") if period else max(known, default=None)
    found = compare(connection, view=view, period=first, currency=currency) if first else []
    return {
        "period": f"{first:%Y-%m}" if first else None,
        "periods": list(dict.fromkeys(f"{one:%Y-%m}" for one in known)),
        "waterfalls": found,
        "meta": {"basis": "allocation", "freshness": freshness(connection)},
    }
