"""``tokenfuse doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from cli.doctor import examine
from cli.logs import mask
from cli.options import Run, common
from cli.output import print_json
from core.errors import BadInput

MARKS = {"ok": "ok     ", "warning": "look   ", "error": "WRONG  "}


@click.command()
@click.argument("what", type=click.Choice(["all", "fleet"]), default="all")
@click.option(
    "--args-file",
    type=click.Path(path_type=Path),
    help="fleet: start commands of engines, ADDRESS: COMMAND (docs/doctor-fleet.md)",
)
@click.option("--litellm-config", type=click.Path(path_type=Path), help="fleet: the gateway's config.yaml")
@common
def doctor(run: Run, what: str, args_file: Path | None, litellm_config: Path | None) -> int:
    """Check Java, disk, database, ports, log, stream and targets; `doctor fleet` asks every engine and gateway how it is set.
    Exit 1: a fault."""
    if what == "fleet":
        from cli.commands.doctor_fleet import doctor_fleet

        return doctor_fleet(run, args_file, litellm_config)
    for option, file in (("--args-file", args_file), ("--litellm-config", litellm_config)):
        if file is not None:
            raise BadInput("is for `doctor fleet` only", field=option, value=file)
    findings = []
    for finding in examine(run.settings):
        findings.append(finding)
        if not run.as_json:
            click.echo(f"{MARKS[finding.verdict]} {finding.check}: {mask(finding.found)}")
            if finding.what_to_do:
                click.echo(f"         → {finding.what_to_do}")
    if run.as_json:
        print_json([asdict(finding) for finding in findings])
    return 1 if any(finding.verdict == "error" for finding in findings) else 0
