"""Reads the business figures for ``/metrics`` in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client import Metric
from sqlalchemy import Connection

from api.budget_view import Standings
from api.metrics import Sample, age_s, gauge
from control.budget_standing import BudgetStanding
from core.unit_cost import COST_BASES
from core.windows import QUARTER_HOUR, Window, floor_time
from models.breaker_repo import list_breakers
from models.decide_repo import list_budgets
from models.guard_repo import list_guards
from models.ledger_repo import unit_cost_rows
from models.policy_repo import latest_policy
from models.quality_repo import stream_lags
from models.usage_repo import coverage_rows

QUARTERS = 8
"""Unit costs and coverage are those of this many quarter hours up to the running one: a close waits for a grace."""
KINDS = {
    "input": "input_per_mtok",
    "input_cached": "input_cached_per_mtok",
    "output": "output_per_mtok",
    "blended": "blended_per_mtok",
}
PHASES = ("closed", "warned", "degraded", "open")


def business_metrics(connection: Connection, standings: Standings, now: datetime) -> list[Metric]:
    """Every family; a value that is unknown has no sample."""
    end = floor_time(now, QUARTER_HOUR)
    window = Window(end - QUARTERS * QUARTER_HOUR, end)
    readers: tuple[Callable[[], list[Metric]], ...] = (
        lambda: _unit_costs(connection, window),
        lambda: _coverage(connection, window),
        lambda: _budgets(connection, standings, now),
        lambda: _breakers(connection, now),
        lambda: _stream(connection, now),
        lambda: _guards(connection, now),
    )
    return [family for read in readers for family in read()]


def _unit_costs(connection: Connection, window: Window) -> list[Metric]:
    def samples() -> Iterator[Sample]:
        for basis in COST_BASES:
            for row in unit_cost_rows(connection, ("deployment",), window, basis):
                for kind, field in KINDS.items():
                    yield (row["deployment"], kind, basis, row["currency"]), row[field]

    text = "Cost of a million tokens in the quarter hours closed within the last two hours."
    return [gauge("tokenfuse_cost_per_million_tokens", text, ("deployment", "kind", "basis", "currency"), samples())]


def _coverage(connection: Connection, window: Window) -> list[Metric]:
    rows = coverage_rows(connection, ("deployment",), window, with_reasons=False)
    samples = [((row["deployment"],), row["coverage"]) for row in rows]
    text = "Share of engine tokens that usage records explain, last two hours."
    return [gauge("tokenfuse_coverage_ratio", text, ("deployment",), samples)]


def _budgets(connection: Connection, standings: Standings, now: datetime) -> list[Metric]:
    found = standings.of(connection, list_budgets(connection), now)

    def keys(standing: BudgetStanding) -> tuple[str, ...]:
        budget = standing.stored.budget
        return str(budget.scope), budget.period, budget.amount.currency

    labels = ("scope", "period", "currency")
    spend = [(keys(s), s.spend.amount if s.spend else None) for s in found]
    burn = [(keys(s), s.burn.value) for s in found]
    return [
        gauge("tokenfuse_budget_spend", "Spend of the running period, estimate included.", labels, spend),
        gauge("tokenfuse_budget_amount", "The plan.", labels, [(keys(s), s.stored.budget.amount.amount) for s in found]),
        gauge("tokenfuse_budget_cap", "The hard limit now.", labels, [(keys(s), s.cap.amount if s.cap else None) for s in found]),
        gauge("tokenfuse_budget_burn", "Spend of the last hour over the plan's.", labels, burn),
    ]


def _breakers(connection: Connection, now: datetime) -> list[Metric]:
    found = list_breakers(connection)
    phases = [((b.scope, phase), int(b.phase == phase)) for b in found for phase in PHASES]
    refusing = [((b.scope,), int(b.refuses(now))) for b in found]
    return [
        gauge("tokenfuse_breaker_phase", "1 for the phase the breaker is in.", ("scope", "phase"), phases),
        gauge("tokenfuse_breaker_refusing", "1 while guards refuse.", ("scope",), refusing),
    ]


def _stream(connection: Connection, now: datetime) -> list[Metric]:
    lags = stream_lags(connection, now)
    behind = [((lag.topic,), lag.behind_lines) for lag in lags]
    catching_up = [((lag.topic,), int(lag.catching_up)) for lag in lags]
    ages = [((lag.topic,), age_s(lag.applied_at, now)) for lag in lags]
    return [
        gauge(
            "tokenfuse_stream_behind_lines",
            "Log lines not yet counted.",
            ("topic",),
            behind,
        ),
        gauge("tokenfuse_stream_catching_up", "1 while behind or silent.", ("topic",), catching_up),
        gauge("tokenfuse_stream_applied_age_seconds", "Age of the newest applied delta file.", ("topic",), ages),
    ]


def _guards(connection: Connection, now: datetime) -> list[Metric]:
    found = list_guards(connection)
    newest = latest_policy(connection)
    seen = [((g.name,), age_s(g.last_seen_at, now)) for g in found]
    held = [((g.name,), g.last_version) for g in found]
    return [
        gauge("tokenfuse_guard_seen_age_seconds", "Since the guard last asked.", ("guard",), seen),
        gauge("tokenfuse_guard_policy_version", "Policy version the guard holds.", ("guard",), held),
        gauge("tokenfuse_policy_version", "Newest published policy.", (), [] if newest is None else [((), newest.version)]),
        gauge("tokenfuse_policy_age_seconds", "Its age.", (), [] if newest is None else [((), age_s(newest.issued_at, now))]),
    ]
