"""Budgets with their spend, standing limits, exemptions. Every change is audited under the token's name."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import Any

from api.budget_view import budget_row, forecast_rows, tree_rows
from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import Live
from api.schemas.budgets import (
    BudgetIn,
    BudgetsOut,
    CapIncreaseIn,
    Changed,
    ExemptionIn,
    ExemptionsOut,
    ForecastsOut,
    LimitIn,
    LimitsOut,
    TreeOut,
)
from api.schemas.errors import error_responses
from api.tenancy import may_see, require_own
from control.budgets import Stored, add_exemption, increase_cap, set_budget, set_limit
from core.errors import NotFound
from models.decide_repo import list_budgets, list_cap_increases, list_exemptions, list_limits
from models.quality_repo import freshness

reads = router("read", tags=["budgets"])
writes = router("operate", tags=["budgets"])
CHANGE = error_responses(404, 409, 413, 422)


@reads.get("/v1/budgets", response_model=BudgetsOut)
def budgets(parts: PartsDep, caller: CallerDep, connection: ConnectionDep, live: Live = False) -> dict[str, Any]:
    """Each budget in force with its spend so far, pace against the plan and when it runs out at the speed of the last hour.

    As the control loop last measured them, a few seconds ago (`as_of`); one it has not measured lately is measured now
    (`live`).
    """
    now = parts.now()
    mine = [stored for stored in list_budgets(connection) if may_see(caller, str(stored.budget.scope))]
    found = parts.standings.of(connection, mine, now, live=live)
    return {
        "budgets": [budget_row(standing) for standing in found],
        "as_of": min((standing.at for standing in found), default=now),
        "freshness": freshness(connection),
    }


@reads.get("/v1/budgets/tree", response_model=TreeOut)
def tree(parts: PartsDep, caller: CallerDep, connection: ConnectionDep, live: Live = False) -> dict[str, Any]:
    """The budgets as a tree, each parent before its children: what of its amount no child was given, and what was spent outside
    the children's scopes. A tenant stands under the nearest budget above it, a deployment under the platform's."""
    now = parts.now()
    mine = [stored for stored in list_budgets(connection) if may_see(caller, str(stored.budget.scope))]
    found = parts.standings.of(connection, mine, now, live=live)
    as_of = min((standing.at for standing in found), default=now)
    return {"rows": tree_rows(found), "as_of": as_of, "freshness": freshness(connection)}


@reads.get("/v1/budgets/forecast", response_model=ForecastsOut)
def forecasts(parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """What each budget's running period is forecast to cost at its end, with an 80 % interval, and when its amount runs out."""
    mine = [stored for stored in list_budgets(connection) if may_see(caller, str(stored.budget.scope))]
    return {"rows": forecast_rows(connection, mine, parts.now())}


@reads.get("/v1/limits", response_model=LimitsOut)
def limits(caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Standing limits: they need no trip."""
    return {"limits": [asdict(limit) for limit in list_limits(connection) if may_see(caller, limit.scope)]}


@reads.get("/v1/exemptions", response_model=ExemptionsOut)
def exemptions(parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> dict[str, Any]:
    """Exemptions in force: no breaker refuses these scopes until they expire."""
    found = list_exemptions(connection, parts.now())
    return {"exemptions": [asdict(exemption) for exemption in found if may_see(caller, exemption.scope)]}


@writes.post("/v1/budgets", response_model=Changed, responses=CHANGE)
def post_budget(body: BudgetIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> Changed:
    """Set the budget of (scope, period). A cap makes a breaker, in shadow until a person enforces it."""
    require_own(caller, body.scope)
    before = {stored.id for stored in list_budgets(connection)}
    stored = set_budget(
        connection, body.scope, body.period, Decimal(body.amount), body.currency or parts.settings.currency,
        body.zone or parts.settings.zone, caller.name, parts.now(),
        cap=None if body.cap is None else Decimal(body.cap), cost_basis=body.cost_basis, owner=body.owner,
        fiscal_start=body.fiscal_start, rollover=body.rollover,
    )  # fmt: skip
    return _changed(stored.value.id, stored, stored.value.id not in before)


@writes.post("/v1/budgets/increase", response_model=Changed, responses=CHANGE)
def post_increase(body: CapIncreaseIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> Changed:
    """Raise a cap until a time. The approver is named in the audit trail; the same increase sent again is not added again."""
    require_own(caller, body.scope)
    currency = body.currency or _currency(connection, body.scope, body.period)
    approver, extra = f"{body.approver} (by token {caller.name})", Decimal(body.extra)
    for one in list_cap_increases(connection, parts.now()):
        held = one.increase
        if (one.scope, one.period) == (body.scope, body.period) and (
            (held.extra.amount, held.expires_at, held.approver, held.reason) == (extra, body.expires_at, approver, body.reason)
        ):
            return Changed(id=one.id, changed=False)
    stored = increase_cap(
        connection, body.scope, body.period, extra, currency, body.expires_at, approver, body.reason, parts.now()
    )
    return _changed(stored.value.id, stored)


@writes.post("/v1/exemptions", response_model=Changed, responses=CHANGE)
def post_exemption(body: ExemptionIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> Changed:
    """Let a scope through until a time, whatever breakers say. The same exemption sent again is not added again."""
    require_own(caller, body.scope)
    wanted = (body.scope, body.owner, body.reason, body.expires_at)
    for one in list_exemptions(connection, parts.now()):
        if (one.scope, one.owner, one.reason, one.expires_at) == wanted:
            return Changed(id=one.id, changed=False)
    stored = add_exemption(connection, body.scope, body.owner, body.reason, body.expires_at, caller.name, parts.now())
    return _changed(stored.value.id, stored)


@writes.post("/v1/limits", response_model=Changed, responses=CHANGE)
def post_limit(body: LimitIn, parts: PartsDep, caller: CallerDep, connection: ConnectionDep) -> Changed:
    """Set a standing limit of a scope; `warn` reports, `enforce` refuses."""
    require_own(caller, body.scope)
    same = [one for one in list_limits(connection) if (one.scope, one.name) == (body.scope, body.name)]
    if same and (same[0].value, same[0].mode) == (body.value, body.mode):
        return Changed(id=same[0].id, changed=False)
    stored = set_limit(connection, body.scope, body.name, body.value, body.mode, caller.name, parts.now())
    return _changed(stored.value.id, stored)


def _changed(row_id: int, stored: Stored[Any], changed: bool = True) -> Changed:
    return Changed(id=row_id, changed=changed, warnings=list(stored.warnings))


def _currency(connection: ConnectionDep, scope: str, period: str) -> str:
    for stored in list_budgets(connection):
        if (str(stored.budget.scope), stored.budget.period) == (scope, period):
            return stored.budget.amount.currency
    raise NotFound(f"{scope} has no {period} budget", hint="set one first")
