"""``tokenfuse doctor aws``: what stands between an AWS account and its bill, and when the first delivery is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

import click
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError

from cli.logs import mask
from cli.options import Run
from cli.output import print_json
from cli.settings import Settings
from cli.supervisor import read_pid
from cli.wiring import database_url, utc_now
from control.fleet.aws_facts import AwsPlace, gather_aws
from control.fleet.aws_session import aws_clients, default_region
from core.aws_checks import AwsFinding, Unread, examine_aws
from core.errors import TokenfuseError
from core.tag_plan import TagKeys
from ingest.billing.s3_store import S3Files, S3Settings
from models.billing_repo import BillVersion, deliveries
from models.database import open_engine, transaction

MARKS = {"pass": "pass   ", "fail": "FAIL   ", "unknown": "unknown"}
START = "start it with `tokenfuse up`, or pass --db"


def doctor_aws(run: Run, bucket: str, prefix: str, region: str, endpoint_url: str | None) -> int:
    """Print every finding; 1 when any check fails, else 0."""
    where = region or default_region() or "us-east-1"
    folder = prefix.strip("/")
    store = S3Files(f"s3://{bucket}/{folder}", S3Settings(endpoint_url, where)) if bucket else None
    facts = gather_aws(
        aws_clients(endpoint_url),
        where,
        AwsPlace(bucket, folder, store),
        TagKeys(run.settings.aws_tag_prefix).all,
        _bills(run.settings),
        utc_now(),
    )
    findings = examine_aws(facts)
    if run.as_json:
        print_json([asdict(one) for one in findings])
    else:
        _show(findings)
    return 1 if any(one.verdict == "fail" for one in findings) else 0


def _bills(settings: Settings) -> Sequence[BillVersion] | Unread:
    """The bills in force, where a database is there to ask: none is started for this."""
    if settings.db_url is None and read_pid(settings.data_dir / "run" / "supervisor.json") is None:
        return Unread("the database does not run, so what was imported is not known", START)
    try:
        engine = open_engine(database_url(settings))
        try:
            with transaction(engine) as connection:
                return deliveries(connection)
        finally:
            engine.dispose()
    except ProgrammingError:
        return Unread("the database has not the tables of bills", "run `tokenfuse db upgrade`, or `tokenfuse up`")
    except (SQLAlchemyError, TokenfuseError) as error:
        return Unread(f"the database was not read: {mask(str(error).splitlines()[0])}", START)


def _show(findings: Sequence[AwsFinding]) -> None:
    for check, ones in groupby(findings, key=lambda one: one.check):
        for one in ones:
            click.echo(mask(f"{MARKS[one.verdict]} {check}: {one.reason}"))
            if one.fix:
                click.echo(mask(f"        → {one.fix}"))
    click.echo(f"\n{', '.join(f'{sum(one.verdict == verdict for one in findings)} {verdict}' for verdict in MARKS)}")
