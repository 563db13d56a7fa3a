"""``tokenfuse doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict

import click

from cli.doctor import examine, fleet
from cli.logs import mask
from cli.options import Run, common
from cli.output import print_json

MARKS = {"ok": "ok     ", "warning": "look   ", "error": "WRONG  "}


@click.command()
@click.argument("what", type=click.Choice(["all", "fleet"]), default="all")
@common
def doctor(run: Run, what: str) -> int:
    """Check Java, disk, database, ports, log, stream and targets; `doctor fleet` asks every engine. Exit 1: a fault."""
    findings = []
    for finding in fleet(run.settings) if what == "fleet" else examine(run.settings):
        findings.append(finding)
        if not run.as_json:
            click.echo(f"{MARKS[finding.verdict]} {finding.check}: {mask(finding.found)}")
            if finding.what_to_do:
                click.echo(f"         → {finding.what_to_do}")
    if run.as_json:
        print_json([asdict(finding) for finding in findings])
    return 1 if any(finding.verdict == "error" for finding in findings) else 0
