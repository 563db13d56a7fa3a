"""Is the process alive, and can it do its work? The only routes without a token."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from fastapi import APIRouter, Response
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from api.deps import Parts, PartsDep
from api.schemas.health import Check, HealthOut, ReadyOut
from core.errors import TokenfuseError
from models.database import alembic_config, transaction

routes = APIRouter(tags=["health"])


@routes.get("/healthz", response_model=HealthOut)
def healthz() -> HealthOut:
    """The process answers. Says nothing of what it depends on."""
    return HealthOut(status="ok")


@routes.get(
    "/readyz",
    response_model=ReadyOut,
    responses={503: {"model": ReadyOut, "description": "At least one check failed; its `detail` says what to do."}},
)
def readyz(parts: PartsDep, response: Response) -> ReadyOut:
    """Database reachable with the newest schema, log writable."""
    checks = [
        Check(name=name, ok=detail == "", detail=detail)
        for name, detail in (
            ("database", _fault(lambda: _database(parts))),
            ("log", _fault(lambda: _log_writable(parts.settings.data_dir / "log"))),
        )
    ]
    ready = all(check.ok for check in checks)
    response.status_code = 200 if ready else 503
    return ReadyOut(status="ok" if ready else "not_ready", checks=checks)


def _fault(check: Callable[[], str]) -> str:
    try:
        return check()
    except (TokenfuseError, SQLAlchemyError, OSError) as error:
        return f"{type(error).__name__}; run `tokenfuse doctor`"


def _database(parts: Parts) -> str:
    with transaction(parts.engine) as connection:
        found, wanted = schema_revisions(connection)
    return "" if found == wanted else f"schema is at {found or 'nothing'}, not {wanted}; run `tokenfuse db upgrade`"


def schema_revisions(connection: Connection) -> tuple[str, str]:
    """(revision of the database, newest revision of this program)."""
    wanted = ScriptDirectory.from_config(alembic_config("")).get_current_head()
    return MigrationContext.configure(connection).get_current_revision() or "", wanted or ""


def _log_writable(folder: Path) -> str:
    if not folder.is_dir():
        return "the log folder does not exist; start with `tokenfuse up`"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "the log folder is not writable; check its owner"
