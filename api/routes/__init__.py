"""Every router of the application."""

from fastapi import APIRouter

from api.routes import (
    breakers,
    budgets,
    explain,
    features,
    fleet,
    fleet_checks,
    gateway_counters,
    health,
    identity,
    ingest,
    ledger,
    otlp,
    overview,
    policy,
    quality,
    self_description,
    trail,
    usage,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.routes,
    ingest.routes,
    otlp.routes,
    gateway_counters.routes,
    overview.routes,
    usage.routes,
    fleet.routes,
    fleet_checks.routes,
    features.routes,
    ledger.routes,
    explain.routes,
    budgets.reads,
    budgets.writes,
    breakers.reads,
    breakers.writes,
    identity.reads,
    identity.writes,
    trail.routes,
    quality.routes,
    policy.routes,
    self_description.routes,
)
