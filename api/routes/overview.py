"""The Overview page in one call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from api.budget_view import budget_row, ratio
from api.deps import CallerDep, ConnectionDep, Parts, PartsDep, router
from api.overview import UnitFigures, View, closed_steps, idle_share, late_steps, series, step_of, unit_figures
from api.query import From, Live, To, parse_window
from api.routes.breakers import breaker_row
from api.schemas.reads import OverviewOut
from api.schemas.types import CostBasis
from api.tenancy import confine, may_see, own_scope
from core.scopes import Scope
from core.spend import Spend
from core.windows import Window, floor_time, period_window
from models.access_repo import Principal
from models.breaker_repo import list_breakers
from models.decide_repo import list_budgets
from models.quality_repo import freshness
from models.usage_repo import coverage_rows, usage_rows

routes = router("read", tags=["overview"])
MINUTE = timedelta(minutes=1)


@routes.get("/v1/overview", response_model=OverviewOut)
def overview(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep,
    since: From = None, until: To = None,
    basis: CostBasis = "allocation", live: Live = False,
) -> dict[str, Any]:  # fmt: skip
    """Spend against the plan, unit cost now and before, idle share, budgets, breakers and a series for the chart.

    Without `from` and `to`: the running month of the reporting zone. A tenant's token gets its own tenant's figures.
    """
    view = _view(parts, caller, since, until, basis)
    now_figures = unit_figures(connection, view, view.elapsed)
    before_figures = unit_figures(connection, view, view.before)
    closed = closed_steps(connection, view)
    idle = idle_share(view, closed)
    late = late_steps(view)
    spent, spent_before, *lately = view.spends(connection, [view.elapsed, view.before, *late])
    budgets = [stored for stored in list_budgets(connection) if may_see(caller, str(stored.budget.scope))]
    breakers = [b for b in list_breakers(connection) if b.phase != "closed" and may_see(caller, b.scope)]
    return {
        **_spend_rows(spent, spent_before),
        "unit_cost_per_mtok": _compared(now_figures, before_figures),
        "idle_share": ratio(idle.value),
        "idle_reason": idle.reason,
        **_work(connection, view),
        "budgets": [budget_row(s) for s in parts.standings.of(connection, budgets, view.now, live=live)],
        "breakers_not_closed": [breaker_row(b, view.now) for b in breakers],
        "series": series(view, closed, dict(zip(late, lately, strict=True))),
        "series_step": step_of(view.elapsed),
        "meta": _meta(connection, view, now_figures, spent),
    }


def _view(parts: Parts, caller: Principal, since: str | None, until: str | None, basis: CostBasis) -> View:
    now, settings = parts.now(), parts.settings
    window = period_window("month", now, settings.zone)
    if since or until:
        window = parse_window(since, until, now, timedelta(days=1))
    scope = own_scope(caller) or Scope("platform")
    return View(scope, confine(caller, {}), window, basis, now, settings.zone, settings.currency)


def _spend_rows(spent: Spend, before: Spend) -> dict[str, Any]:
    return {
        "spend": None if spent.amount is None else spent.amount.amount,
        "spend_reason": spent.reason,
        "spend_state": spent.state,
        "spend_before": None if before.amount is None else before.amount.amount,
        "spend_before_reason": before.reason,
    }


def _compared(now: UnitFigures, before: UnitFigures) -> dict[str, Any]:
    return {
        "now": now.blended.value,
        "now_reason": now.blended.reason,
        "before": before.blended.value,
        "before_reason": before.blended.reason,
    }


def _work(connection: Connection, view: View) -> dict[str, int]:
    rows = usage_rows(connection, (), _whole_minutes(view.elapsed), view.filters, zone_name=view.zone)
    row = rows[0] if rows else {}
    inputs = ("input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h")
    return {
        "tokens_input": sum(row.get(name, 0) for name in inputs),
        "tokens_output": row.get("output", 0),
        "requests": row.get("requests", 0),
    }


def _meta(connection: Connection, view: View, figures: UnitFigures, spent: Spend) -> dict[str, Any]:
    sources = ("price_source", "utilisation_source", "weight_source")
    covered = [] if view.filters else coverage_rows(connection, (), _whole_minutes(view.elapsed), with_reasons=False)
    return {
        **{name: figures.meta.get(name) for name in sources},
        "basis": view.basis,
        "state": spent.state,
        "coverage": covered[0]["coverage"] if covered else None,
        "freshness": freshness(connection),
        "currency": spent.amount.currency if spent.amount else view.currency,
        "window_start": view.window.start,
        "window_end": view.window.end,
    }


def _whole_minutes(window: Window) -> Window:
    end = floor_time(window.end, MINUTE)
    return Window(floor_time(window.start, MINUTE), end if end == window.end else end + MINUTE)
