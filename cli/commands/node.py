"""``tokenfuse node``: which GPUs serve what, since when, and by what id a cloud bills them.

Targets of the settings are declared by themselves.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from cli.commands.ingest import parse_deployment
from cli.options import Run, common, parse_time, window_options
from cli.output import print_rows, say
from cli.wiring import database, utc_now
from core.capacity import NodeService
from core.errors import NotFound
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
