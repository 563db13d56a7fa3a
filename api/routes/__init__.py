"""Every router of the application."""

from fastapi import APIRouter

from api.routes import health, ingest, ledger, policy, trail

ROUTERS: tuple[APIRouter, ...] = (health.routes, ingest.routes, ledger.routes, trail.routes, policy.routes)
