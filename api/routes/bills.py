"""Bill deliveries and the charges of those in force."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from fastapi import Query, Request

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import MAX_NAME, NAME_PATTERN, From, RowsDep, To, parse_by, parse_month, parse_time
from api.schemas.bills import BillsOut, ChargesOut
from api.tenancy import require_all_tenants
from control.money_in import asked_currency, charges_in
from core.errors import BadInput
from core.windows import Window
from models.billing_repo import CHARGE_KEYS, charges_by, deliveries

routes = router("read", tags=["bills"])
FILTERS = ("source", "provider", "account", "service", "bucket", "kind", "resource_id", "currency")
Month = Annotated[str | None, Query(max_length=7, pattern=r"^\d{4}-\d{2}$", examples=["2026-07"])]
Currency = Annotated[
    str | None,
    Query(alias="in", max_length=9, pattern="^([A-Z]{3}|reporting)$", description="In this currency, each day at its own rate."),
]
Via = Annotated[str, Query(pattern="^([A-Z]{3})?$", description="A third currency that may stand between two without a rate.")]
AsOf = Annotated[
    str | None, Query(max_length=40, description="As the deliveries stood then.", json_schema_extra={"format": "date-time"})
]


def _filter(key: str) -> Any:
    return Query(alias=f"filter.{key}", max_length=MAX_NAME, pattern=NAME_PATTERN, description=f"Only charges of this {key}.")


@routes.get("/v1/bills", response_model=BillsOut)
def bills(
    caller: CallerDep, connection: ConnectionDep, rows: RowsDep,
    every: Annotated[bool, Query(alias="all", description="Superseded and refused versions too.")] = False,
) -> dict[str, Any]:  # fmt: skip
    """Deliveries by source, export, billing period and version."""
    require_all_tenants(caller, "a bill")
    found = [asdict(one) for one in deliveries(connection, every=every)]
    return {"bills": rows.of(found), "total_rows": len(found)}


@routes.get("/v1/charges", response_model=ChargesOut)
def charges(
    request: Request, parts: PartsDep, caller: CallerDep, connection: ConnectionDep, rows: RowsDep,
    by: Annotated[str, Query(max_length=200, description="Grouping keys, separated by commas.")] = "bucket,billing_period",
    invoice_from: Month = None, invoice_to: Month = None, since: From = None, until: To = None,
    as_of: AsOf = None, into: Currency = None, via: Via = "",
    source: Annotated[str | None, _filter("source")] = None, provider: Annotated[str | None, _filter("provider")] = None,
    account: Annotated[str | None, _filter("account")] = None, service: Annotated[str | None, _filter("service")] = None,
    bucket: Annotated[str | None, _filter("bucket")] = None, kind: Annotated[str | None, _filter("kind")] = None,
    resource_id: Annotated[str | None, _filter("resource_id")] = None,
    currency: Annotated[str | None, _filter("currency")] = None,
) -> dict[str, Any]:  # fmt: skip
    """Charges on both bases. `invoice_from`, `invoice_to`: issuer's months, the end not in it; `from`, `to`: UTC days of use."""
    require_all_tenants(caller, "a bill")
    keys = parse_by(by, CHARGE_KEYS)
    given = request.query_params
    asked: dict[str, Any] = {
        "billing_months": _months(invoice_from, invoice_to),
        "days": _days(since, until, parts.now()),
        "filters": {key: given[f"filter.{key}"] for key in FILTERS if f"filter.{key}" in given},
        "as_of": parse_time(as_of, "as_of") if as_of else None,
    }
    if into is None:
        answer: dict[str, Any] = {"rows": charges_by(connection, keys, **asked), "missing": [], "rates": []}
    else:
        to = asked_currency(into, parts.settings.currency, "in")
        answer = charges_in(connection, keys, to, via=via, **asked)
    shown = [{**row, "keys": {key: _text(row[key]) for key in keys}} for row in answer["rows"]]
    return {**answer, "rows": rows.of(shown), "total_rows": len(shown)}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _months(first: str | None, last: str | None) -> tuple[date, date] | None:
    if first is None and last is None:
        return None
    return (
        parse_month(first, "invoice_from") if first else date.min,
        parse_month(last, "invoice_to") if last else date.max,
    )


def _days(since: str | None, until: str | None, now: datetime) -> Window | None:
    """Whole UTC days the window touches: charges are kept by day."""
    if since is None and until is None:
        return None
    start = parse_time(since, "from") if since else datetime(2000, 1, 1, tzinfo=UTC)
    end = parse_time(until, "to") if until else now
    if start >= end:
        raise BadInput("must be after `from`", where="query", field="to", value=end.isoformat())
    midnight = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
    last = end.replace(**midnight)  # type: ignore[arg-type]
    return Window(start.replace(**midnight), last if last == end else last + timedelta(days=1))  # type: ignore[arg-type]
