"""``tokenfuse doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cli.doctor import examine
from cli.logs import mask
from cli.options import Run, common
from cli.output import print_json
from core.errors import BadInput

MARKS = {"ok": "ok     ", "warning": "look   ", "error": "WRONG  "}


@click.command()
@click.argument("what", type=click.Choice(["all", "fleet", "aws"]), default="all")
@click.option(
    "--args-file",
    type=click.Path(path_type=Path),
    help="fleet: start commands of engines, ADDRESS: COMMAND (docs/doctor-fleet.md)",
)
@click.option("--litellm-config", type=click.Path(path_type=Path), help="fleet: the gateway's config.yaml")
@click.option("--bucket", metavar="NAME", help="aws: the bucket bills are delivered to")
@click.option("--prefix", metavar="PATH", help="aws: the export's folder in it")
@click.option("--region", metavar="NAME", help="aws: the bucket's region (default: the usual AWS settings)")
@click.option("--endpoint-url", metavar="URL", help="aws: a private endpoint for the calls")
@common
def doctor(
    run: Run,
    what: str,
    args_file: Path | None,
    litellm_config: Path | None,
    bucket: str | None,
    prefix: str | None,
    region: str | None,
    endpoint_url: str | None,
) -> int:
    """Check Java, disk, database, ports, log, stream and targets; `doctor fleet` asks every engine and gateway how it is set,
    `doctor aws` what is missing for the bill. Exit 1: a fault."""
    given: dict[str, Any] = {"--args-file": args_file, "--litellm-config": litellm_config}
    _only("fleet", what, given)
    given = {"--bucket": bucket, "--prefix": prefix, "--region": region, "--endpoint-url": endpoint_url}
    _only("aws", what, given)
    if what == "fleet":
        from cli.commands.doctor_fleet import doctor_fleet

        return doctor_fleet(run, args_file, litellm_config)
    if what == "aws":
        from cli.commands.doctor_aws import doctor_aws

        return doctor_aws(run, bucket or "", prefix or "", region or "", endpoint_url)
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


def _only(whose: str, what: str, given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        if value is not None and what != whose:
            raise BadInput(f"is for `doctor {whose}` only", field=option, value=value)
