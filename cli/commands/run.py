"""``tokenfuse up``, ``down`` and the hidden ``process``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    if run.settings.db_url is None:
        stop_embedded((run.settings.data_dir / "pg").resolve())
    print_rows([{"data_dir": run.settings.data_dir, "stopped": stopped}], as_json=run.as_json)


@click.command(hidden=True)
@click.argument("name", type=click.Choice(list(PROCESSES)))
@common
def process(run: Run, name: str) -> int:
    """Run one of the supervised processes in the foreground."""
    configure(name, run.settings.log_level)
    return PROCESSES[name](run.settings)


def supervise(settings: Settings, *, on_ready: Any = None) -> int:
    """Database up and migrated, every process started, URLs printed, then watch until a signal."""
    run_dir = settings.data_dir / "run"
    run_dir.mkdir(parents=True, exist_ok=True)
    url = database_url(settings)
    engine = ready_database(settings, url)
    with transaction(engine) as connection:
        admin = first_admin_token(connection, utc_now())
    engine.dispose()
    supervisor = Supervisor(run_dir, _specs(settings), _environment(settings, url))
    supervisor.start()
    try:
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


def _specs(settings: Settings) -> list[ChildSpec]:
    demo = (settings.data_dir / "run" / GATEWAY_FILE).exists()
    wanted = {"postgres": settings.db_url is None, "scrape": bool(settings.targets), "demo-gateway": demo}
    names = [name for name in PROCESSES if wanted.get(name, True)]
    return [ChildSpec(name, ("-m", "cli.main", "process", name)) for name in names]


def _environment(settings: Settings, url: str) -> Mapping[str, str]:
    """What children need beside the settings file: the resolved folder, and the database unless each finds the embedded one."""
    given = {"TOKENFUSE_DATA_DIR": str(settings.data_dir.resolve()), "TOKENFUSE_SETTINGS": str(settings_file().resolve())}
    for name in ("api_port", "ui_port", "flink_port", "demo_port"):
        given[f"TOKENFUSE_{name.upper()}"] = str(getattr(settings, name))
    if settings.db_url is not None:
        given["TOKENFUSE_DB_URL"] = url
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
