"""``tokenfuse doctor fleet``: each engine and gateway against the list of what makes tokens dear or numbers untrue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from cli.fleet_plan import fleet_plan
from cli.logs import mask
from cli.options import Run
from cli.output import print_json, say
from cli.settings import Settings
from cli.supervisor import read_pid
from cli.wiring import database_url, utc_now
from core.errors import TokenfuseError
from core.fleet_checks import CHECKS, Finding, exit_code
from core.fleet_facts import COULD_NOT
from ingest.fleet.gather import inspect
from models.database import open_engine, transaction
from models.fleet_repo import gpus_in_service

MARKS = {"pass": "pass   ", "fail": "FAIL   ", "unknown": "unknown"}
NOTHING = "Nothing to check: name engines in [[targets]], [[discovery]] or [[prometheus]], or a gateway by litellm_url."


def doctor_fleet(run: Run, args_file: Path | None, litellm_config: Path | None) -> int:
    """Print every finding; 1 when any check fails, else 0."""
    declared = _declared(run.settings)
    plan = fleet_plan(run.settings, args_file=args_file, litellm_config=litellm_config, declared=declared)
    findings = inspect(plan, utc_now)
    if run.as_json:
        print_json([_row(one) for one in findings])
    else:
        _show(findings)
    if not findings:
        say(NOTHING)
    return exit_code(findings)


def _declared(settings: Settings) -> Mapping[str, tuple[str, int]]:
    """GPUs of the inventory, where a database is there to ask: none is started for this."""
    if settings.db_url is None and read_pid(settings.data_dir / "run" / "supervisor.json") is None:
        return {}
    try:
        engine = open_engine(database_url(settings))
        try:
            with transaction(engine) as connection:
                return gpus_in_service(connection)
        finally:
            engine.dispose()
    except (SQLAlchemyError, TokenfuseError) as error:
        say(mask(f"The inventory was not read, so GPUs declared there count as unknown: {str(error).splitlines()[0]}"))
        return {}


def _row(one: Finding) -> dict[str, object]:
    about = CHECKS[one.check]
    row = {name: mask(value) or None for name, value in asdict(one).items()}
    return {**row, "what": about.what, "why": about.why}


def _show(findings: Sequence[Finding]) -> None:
    for subject, ones in groupby(findings, key=lambda one: one.subject):
        click.echo(mask(f"\n{subject}"))
        unread: dict[tuple[str, str], list[str]] = {}
        for one in ones:
            _, unread_here, why = one.reason.partition(COULD_NOT)
            if unread_here and not one.seen:
                unread.setdefault((why, one.fix), []).append(one.check)
            else:
                _show_one(one)
        for (why, fix), names in unread.items():
            click.echo(mask(f"  {MARKS['unknown']} {', '.join(names)}{COULD_NOT}{why}"))
            _show_fix(fix)
    click.echo(f"\n{', '.join(f'{sum(one.verdict == verdict for one in findings)} {verdict}' for verdict in MARKS)}")


def _show_one(one: Finding) -> None:
    seen = f" = {one.seen}" if one.seen else ""
    where = f"  [{one.where}]" if one.where and one.where != one.subject else ""
    click.echo(mask(f"  {MARKS[one.verdict]} {one.check}{seen}: {one.reason}{where}"))
    if one.verdict == "fail":
        click.echo(f"          costs: {CHECKS[one.check].why}")
    _show_fix(one.fix)


def _show_fix(fix: str) -> None:
    if fix:
        click.echo(mask(f"          → {fix}"))
