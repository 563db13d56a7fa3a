"""``tokenfuse node``: which GPUs serve what, since when, and by what id a cloud bills them.

Targets of the settings are declared by themselves.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from cli.commands.ingest import parse_deployment
from cli.options import Run, common, parse_time, window_options
from cli.output import print_rows, say
from cli.wiring import database, utc_now
from control.fleet.aws_instances import note_instances, running_instances
from control.fleet.aws_session import aws_clients, default_region
from core.capacity import NodeService
from core.errors import BadInput, NotFound
from core.windows import Window
from models.audit_repo import append_audit
from models.database import transaction
from models.join_repo import NodeIdentity, identify_node
from models.rates_repo import declare_service, end_service, read_services


@click.group()
def node() -> None:
    """The capacity inventory: what is paid for, used or not."""


@node.command()
@click.option("--target", required=True, help="the scrape target (URL), or the name given to `ingest engine --target`")
@click.option("--node", "node_name", required=True)
@click.option("--deployment", required=True, metavar="CLUSTER/NAMESPACE/MODEL")
@click.option("--gpu", required=True, help="GPU type, a name of `tokenfuse rates list`")
@click.option("--count", required=True, type=click.IntRange(min=1), help="how many GPUs")
@click.option("--from", "from_", metavar="TIME", help="in service since (default: now)")
@common
def declare(run: Run, target: str, node_name: str, deployment: str, gpu: str, count: int, from_: str | None) -> None:
    """Put a target's GPUs into service; closed windows it touches are closed again."""
    now = utc_now()
    since = parse_time(from_, "--from") if from_ else now
    service = NodeService(parse_deployment(deployment), target, node_name, gpu, count, since)
    with database(run.settings) as engine, transaction(engine) as connection:
        changed = declare_service(connection, service, "command line")
        if changed:
            append_audit(
                connection,
                now,
                "command line",
                "node.declare",
                f"node:{node_name}",
                {"target": target, "gpus": count, "gpu": gpu},
            )
    print_rows(
        [{"target": target, "node": node_name, "gpu": gpu, "count": count, "since": since, "changed": changed}],
        as_json=run.as_json,
    )


@node.command()
@click.argument("target")
@click.option("--at", metavar="TIME", help="out of service since (default: now)")
@common
def end(run: Run, target: str, at: str | None) -> None:
    """Take a target's GPUs out of service."""
    now = utc_now()
    when = parse_time(at, "--at") if at else now
    with database(run.settings) as engine, transaction(engine) as connection:
        if not end_service(connection, target, when):
            raise NotFound(f"no GPUs of {target} are in service", hint="see `tokenfuse node list`")
        append_audit(connection, now, "command line", "node.end", f"target:{target}", {})
    print_rows([{"target": target, "until": when}], as_json=run.as_json)


@node.command()
@click.argument("node_name", metavar="NODE")
@click.argument("provider_id")
@click.option("--cluster", default="default", show_default=True)
@click.option("--type", "instance_type", default="", help="the cloud's instance type, for example p4d.24xlarge")
@click.option("--from", "from_", metavar="TIME", help="since (default: always)")
@common
def identify(run: Run, node_name: str, provider_id: str, cluster: str, instance_type: str, from_: str | None) -> None:
    """Say by what id the cloud bills NODE: an instance id, ARN, Azure resource id or a Kubernetes node's providerID."""
    now = utc_now()
    since = parse_time(from_, "--from") if from_ else datetime(2000, 1, 1, tzinfo=UTC)
    identity = NodeIdentity(cluster, node_name, provider_id, instance_type, "command line", since)
    with database(run.settings) as engine, transaction(engine) as connection:
        changed = identify_node(connection, identity)
        if changed:
            append_audit(connection, now, "command line", "node.identify", f"node:{node_name}", {"provider_id": provider_id})
    row = {"cluster": cluster, "node": node_name, "provider_id": provider_id, "type": instance_type, "changed": changed}
    print_rows([row], as_json=run.as_json)
    if changed:
        say("The control loop joins the bills with it; `tokenfuse match run` does so now.")


@node.command("import-ec2")
@click.option("--region", help="AWS region (default: the usual AWS settings)")
@click.option("--endpoint-url", metavar="URL", help="for a private endpoint")
@click.option("--dry-run", is_flag=True, help="show what would be noted; nothing is kept")
@common
def import_ec2(run: Run, region: str | None, endpoint_url: str | None, dry_run: bool) -> None:
    """Note the instance ids of nodes from EC2: a node is the instance whose id, private host name or Name tag it bears."""
    place = region or default_region()
    if not place:
        raise BadInput("names no region", field="--region", value="", hint="pass --region, or set AWS_REGION")
    instances = running_instances(aws_clients(endpoint_url), place)
    now = utc_now()
    with database(run.settings) as engine, engine.connect() as connection:
        identified, new = note_instances(connection, instances, f"ec2 {place}")
        if dry_run:
            connection.rollback()
        else:
            if new:
                append_audit(connection, now, "command line", "node.identify", f"ec2:{place}", {"nodes": new})
            connection.commit()
    rows: list[dict[str, Any]] = [
        {"node": str(at), "instance": one.instance_id, "type": one.instance_type} for at, one in identified.found.items()
    ]
    rows += [{"node": str(at), "instance": " or ".join(ids), "type": "not clear"} for at, ids in identified.unclear.items()]
    print_rows(
        rows, as_json=run.as_json, empty=f"None of the {len(instances)} instances in {place} bears a name of the inventory."
    )
    if rows:
        say(f"{new} {'would be' if dry_run else 'are'} new. What is not clear: `tokenfuse node identify NODE INSTANCE`.")


@node.command("list")
@window_options(timedelta(days=1))
@common
def list_command(run: Run, window: Window) -> None:
    """GPUs in service at any time of the window."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = read_services(connection, window)
    rows = [
        {
            "deployment": str(s.deployment),
            "node": s.node,
            "target": s.target,
            "gpu": s.gpu_type,
            "count": s.gpu_count,
            "since": s.since,
            "until": s.until,
        }
        for s in found
    ]
    print_rows(
        rows, as_json=run.as_json, empty="No GPU in service: add [[targets]] to the settings, or `tokenfuse node declare`."
    )
