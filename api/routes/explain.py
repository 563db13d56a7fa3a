"""Why one period cost more or less than another."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import EARLIEST, LATEST, LONGEST, RowsDep
from api.schemas.explain import By, ExplainOut
from api.tenancy import require_all_tenants
from control.explain_facts import explain as compare
from core.errors import BadInput
from core.period_text import HINT, parse_period
from core.windows import Window
from models.quality_repo import freshness

routes = router("read", tags=["cost"])
First = Annotated[
    str, Query(alias="from", max_length=90, description="The first period: 2026-05, 2026-W20, 2026-05-01 or START..END.")
]
Second = Annotated[str, Query(alias="to", max_length=90, description="The period compared with it.")]


@routes.get("/v1/explain", response_model=ExplainOut, response_model_exclude_unset=True)
def explain(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, rows: RowsDep,
    first: First, second: Second, by: By = "deployment",
) -> dict[str, Any]:  # fmt: skip
    """Causes of the difference between two periods' capacity cost, from closed quarter hours; they add up to it exactly."""
    require_all_tenants(caller, "the cost of whole periods")
    windows = _period(first, "from", parts.settings.zone), _period(second, "to", parts.settings.zone)
    found = compare(connection, *windows, by)
    meta = {"basis": "allocation", "freshness": freshness(connection)}
    return {**found, "rows": rows.of(found["rows"]), "total_rows": len(found["rows"]), "meta": meta}


def _period(text: str, field: str, zone_name: str) -> Window:
    try:
        window = parse_period(text, field, zone_name)
    except BadInput as error:
        raise BadInput(error.message, where="query", field=field, value=text, hint=HINT) from error
    if window.start < EARLIEST or window.end > LATEST or window.duration > LONGEST:
        raise BadInput("is outside 2000..2200 or longer than 10 years", where="query", field=field, value=text)
    return window
