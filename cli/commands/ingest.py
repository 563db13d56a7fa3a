"""``tokenfuse ingest``: usage files and recorded engine scrapes into the event log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from cli.commands.bills import bill
from cli.options import Run, common, parse_time
from cli.output import Progress, bullet_list, print_json, say
from cli.wiring import database, event_log, usage_ingest, utc_now
from core.errors import BadInput
from core.usage import Deployment, TenantPath
from ingest.engine.parse import Origin
from ingest.engine.replay import replay_folder
from ingest.usage.files import ingest_file
from ingest.usage.objects import Done, S3Objects, ingest_objects, parse_place
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import SourceOptions
from models.partitions import PartitionKeeper


@click.group()
def ingest() -> None:
    """Read usage files, engine scrapes and bills."""


ingest.add_command(bill)


@ingest.command()
@click.argument("file")
@click.option("--format", "format_", required=True, type=click.Choice(sorted(ADAPTERS)), help="how the file is written")
@click.option("--deployment", metavar="CLUSTER/NAMESPACE/MODEL", help="for traces that name no deployment")
@click.option("--tenant", metavar="ORG[/TEAM[/PROJECT[/USER]]]", help="for traces that name no tenant")
@click.option("--tenant-column", default="", metavar="NAME", help="take the tenant from this column")
@click.option("--start-at", metavar="TIME", help="the instant of time 0 in traces with relative times")
@click.option(
    "--mapping", metavar="FILE", type=click.Path(path_type=Path), help="where a log of format `mapped` keeps its fields"
)
@click.option("--endpoint-url", metavar="URL", help="S3-compatible endpoint, for s3:// places that are not Amazon's")
@common
def usage(
    run: Run,
    file: str,
    format_: str,
    deployment: str | None,
    tenant: str | None,
    tenant_column: str,
    start_at: str | None,
    mapping: Path | None,
    endpoint_url: str | None,
) -> int:
    """Read FILE (plain or gzip), or a gateway's log objects at s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.

    Bad records are quarantined by line and the rest goes on; once more changes no total, and reads only new objects.
    """
    options = SourceOptions(
        deployment=parse_deployment(deployment) if deployment else None,
        tenant=parse_tenant(tenant) if tenant else TenantPath(run.settings.organisation),
        tenant_column=tenant_column,
        start_at=parse_time(start_at, "--start-at") if start_at else None,
        mapping=mapping,
    )
    place = parse_place(file)
    with database(run.settings) as engine, event_log(run.settings) as log:
        judge = usage_ingest(run.settings, engine, log)
        if place is None:
            report = ingest_file(Path(file), format_, options, judge, _file_progress())
        else:
            done = Done(run.settings.data_dir / "run" / "objects", f"{place.url} {format_}")
            store = S3Objects(place, endpoint_url)
            report = ingest_objects(place, store, format_, options, judge, done, Progress("objects read", every=1000))
    nothing_taken = report.rows and not report.accepted + report.duplicate
    code = 1 if report.cut else 2 if nothing_taken else 0
    if run.as_json:
        print_json(asdict(report))
        return code
    say(
        f"{report.rows:,} rows: {report.accepted:,} accepted, {report.duplicate:,} duplicate, {report.quarantined:,} quarantined."
    )
    if report.reasons:
        say("First quarantined rows:\n" + bullet_list(report.reasons))
    if report.unmapped:
        say(
            "Fields no rule knows (kept in the raw record): "
            + ", ".join(f"{k} ×{n:,}" for k, n in sorted(report.unmapped.items()))
        )
    if report.accepted:
        say("They are counted once the stream has read them: `tokenfuse stream run --until-idle`, or a running `tokenfuse up`.")
    if report.cut:
        say("Not read to the end; copy it again whole and repeat, nothing doubles:\n" + bullet_list(report.cut))
    return code


@ingest.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--deployment", metavar="CLUSTER/NAMESPACE/MODEL", help="where the engine belongs; MODEL renames the page's model")
@click.option("--target", default="", metavar="URL", help="the engine's address in its key (default: the folder's name)")
@click.option("--node", default="", help="the node it ran on")
@common
def engine(run: Run, folder: Path, deployment: str | None, target: str, node: str) -> None:
    """Replay recorded scrapes: FOLDER holds UNIXTIME.prom or UNIXTIME.prom.gz. The first page of an engine is a baseline."""
    place = parse_deployment(deployment) if deployment else None
    origin = Origin(
        cluster=place.cluster if place else run.settings.default_cluster,
        namespace=place.namespace if place else run.settings.default_namespace,
        node=node,
        model_id=place.model_id if place else None,
    )
    with database(run.settings) as db, event_log(run.settings) as log:
        report = replay_folder(
            folder,
            log,
            target or folder.resolve().name,
            origin,
            now=utc_now,
            ensure_partitions=PartitionKeeper(db),
            progress=Progress("pages read", every=100),
        )
    if run.as_json:
        print_json(asdict(report))
        return
    say(
        f"{report.files:,} files: {report.pages:,} pages read, {report.samples:,} engine samples, {report.faults:,} faults noted."
    )
    if report.skipped:
        say("Skipped:\n" + bullet_list(f"{name}: {reason}" for name, reason in report.skipped[:20]))


def _file_progress() -> Callable[[int, int, int], None]:
    progress = Progress("bytes read", every=8_000_000)

    def show(bytes_read: int, size: int, _rows: int) -> None:
        progress(bytes_read, size)

    return show


def parse_deployment(text: str) -> Deployment:
    """``CLUSTER/NAMESPACE/MODEL``; the model id may hold more slashes. Raises BadInput."""
    parts = text.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise BadInput(
            "is not CLUSTER/NAMESPACE/MODEL", field="--deployment", value=text, hint="for example default/default/qwen3-32b"
        )
    return Deployment(*parts)


def parse_tenant(text: str) -> TenantPath:
    """``ORG[/TEAM[/PROJECT[/USER]]]``. Raises BadInput."""
    parts = text.split("/")
    if not 1 <= len(parts) <= 4 or not parts[0]:
        raise BadInput("is not ORG[/TEAM[/PROJECT[/USER]]]", field="--tenant", value=text)
    return TenantPath(*parts)
