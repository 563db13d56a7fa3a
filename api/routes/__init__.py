"""Every router of the application."""

from fastapi import APIRouter

from api.routes import breakers, budgets, health, ingest, ledger, overview, policy, self_description, trail, usage

ROUTERS: tuple[APIRouter, ...] = (
    health.routes,
    ingest.routes,
    overview.routes,
    usage.routes,
    ledger.routes,
    budgets.reads,
    budgets.writes,
    breakers.reads,
    breakers.writes,
    trail.routes,
    policy.routes,
    self_description.routes,
)
