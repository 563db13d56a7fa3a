"""``tokenfuse up``, ``down`` and the hidden ``process``."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import httpx

from cli.demo.gateway import GATEWAY_FILE
from cli.logs import configure
from cli.options import Run, common
from cli.output import print_rows, say
from cli.processes import PROCESSES
from cli.settings import Settings, settings_file
from cli.supervisor import ChildSpec, Supervisor, stop_running
from cli.wiring import database_url, ready_database, utc_now
from core.errors import Conflict
from models.access_repo import first_admin_token
from models.database import stop_embedded, transaction

READY_WAIT_S = 120.0


@click.command()
@common
def up(run: Run) -> int:
    """Start everything and stay in the foreground; Ctrl-C stops it all."""
    return supervise(run.settings)


@click.command()
@common
def down(run: Run) -> None:
    """Stop everything that runs in this data folder, the embedded database too."""
    stopped = stop_running(run.settings.data_dir / "run")
    database = run.settings.db_url is None and stop_embedded((run.settings.data_dir / "pg").resolve())
    print_rows(
        [{"data_dir": run.settings.data_dir, "stopped": stopped or database, "database_stopped": database}], as_json=run.as_json
    )


@click.command(hidden=True)
@click.argument("name", type=click.Choice(list(PROCESSES)))
@common
def process(run: Run, name: str) -> int:
    """Run one of the supervised processes in the foreground."""
    configure(name, run.settings.log_level)
    return PROCESSES[name](run.settings)


def supervise(
    settings: Settings, *, prepare: Callable[[], None] | None = None, on_ready: Callable[[], None] | None = None
) -> int:
    """Database up and migrated, every process started, URLs printed, then watch until a signal.

    ``prepare`` runs once the folder is ours, before anything starts; ``on_ready`` once the API answers.
    """
    supervisor = Supervisor(settings.data_dir / "run", (), _environment(settings))
    supervisor.claim()
    try:
        require_free_ports(settings, is_demo=prepare is not None or _is_demo(settings))
        if prepare is not None:
            prepare()
        admin = _first_admin(settings)
        supervisor.specs = _specs(settings)
        supervisor.start()
        _await_ready(settings, supervisor)
        _announce(settings, admin)
        if on_ready is not None:
            on_ready()
        supervisor.watch()
    finally:
        say("stopping …")
        supervisor.stop()
        if settings.db_url is None:
            stop_embedded((settings.data_dir / "pg").resolve())
    return 0


def require_free_ports(settings: Settings, *, is_demo: bool) -> None:
    """Raises Conflict naming the first port another program holds: a child that cannot bind would only die again and again."""
    names = ("api_port", "ui_port", "flink_port", "demo_port")
    for name in names if is_demo else names[:3]:
        host = "127.0.0.1" if name == "flink_port" else settings.bind_host
        port = getattr(settings, name)
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise Conflict(
                f"{name} {port} on {host} cannot be used ({error.strerror})",
                hint=f"stop what holds it, or set TOKENFUSE_{name.upper()} to a free port",
            ) from error


def _first_admin(settings: Settings) -> str | None:
    engine = ready_database(settings, database_url(settings))
    with transaction(engine) as connection:
        admin = first_admin_token(connection, utc_now())
    engine.dispose()
    return admin


def _is_demo(settings: Settings) -> bool:
    return (settings.data_dir / "run" / GATEWAY_FILE).exists()


def _specs(settings: Settings) -> list[ChildSpec]:
    reads = settings.targets or settings.discovery or any(setting.read for setting in settings.prometheus)
    wanted = {"postgres": settings.db_url is None, "scrape": bool(reads), "demo-gateway": _is_demo(settings)}
    names = [name for name in PROCESSES if wanted.get(name, True)]
    return [ChildSpec(name, ("-m", "cli.main", "process", name)) for name in names]


def _environment(settings: Settings) -> Mapping[str, str]:
    """What children need beside the settings file: the resolved folder, and the database unless each finds the embedded one."""
    given = {"TOKENFUSE_DATA_DIR": str(settings.data_dir.resolve()), "TOKENFUSE_SETTINGS": str(settings_file().resolve())}
    for name in ("api_port", "ui_port", "flink_port", "demo_port"):
        given[f"TOKENFUSE_{name.upper()}"] = str(getattr(settings, name))
    if settings.db_url is not None:
        given["TOKENFUSE_DB_URL"] = settings.db_url.get_secret_value()
    return given


def _await_ready(settings: Settings, supervisor: Supervisor) -> None:
    """Wait until the API answers ready; a page that says "cannot be reached" is no welcome."""
    deadline = time.monotonic() + READY_WAIT_S
    verify: bool | str = str(settings.tls_cert) if settings.tls_cert else True
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{settings.api_url}/readyz", timeout=2, verify=verify).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    say(
        f"The API is not ready after {READY_WAIT_S:.0f} s; not running: {', '.join(supervisor.dead()) or 'nothing'}. "
        f"Logs: {settings.data_dir}/run"
    )


def _announce(settings: Settings, admin: str | None) -> None:
    scheme = "https" if settings.tls_cert else "http"
    say(f"Web pages   {scheme}://{settings.bind_host}:{settings.ui_port}")
    say(f"API         {settings.api_url}   (what it takes: docs/api.md)")
    say(f"Flink       http://127.0.0.1:{settings.flink_port}   (once the job has started)")
    say(f"Logs        {Path(settings.data_dir) / 'run'}")
    if admin:
        say(f"\nAdmin token, shown this once:\n\n    {admin}\n")
