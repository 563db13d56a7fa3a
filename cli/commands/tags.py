"""``tokenfuse tags``: cost-allocation tags on the cloud's resources, so that its console groups by our names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click
from sqlalchemy import Connection

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common, parse_time, window_options
from cli.output import Progress, print_json, print_rows, say
from cli.wiring import database, utc_now
from control.fleet.aws_session import Clients, aws_clients, default_region
from control.fleet.aws_tags import CostTag, TagDone, activate_tags, apply_tags, backfill_tags, cost_tags, read_tags
from core.errors import BadInput
from core.tag_plan import TagChange, TagKeys, arn_of, plan_tags
from core.windows import Window
from models.audit_repo import append_audit
from models.database import transaction
from models.tag_repo import billed_machines

MONTH = timedelta(days=30)
ENDPOINT = click.option("--endpoint-url", metavar="URL", help="a private endpoint for the calls (default: Amazon's)")
REGION = click.option("--region", metavar="NAME", help="any region of the partition (default: the usual AWS settings)")
NOTHING = "No AWS machine of a bill is joined to a node in these days: import a bill, then see `tokenfuse show unmatched`."


@click.group()
def tags() -> None:
    """Cost-allocation tags: plan (changes nothing), apply to resources, activate for the bill, status."""


@tags.command()
@ENDPOINT
@window_options(MONTH)
@common
def plan(run: Run, window: Window, endpoint_url: str | None) -> int:
    """Show which tags each machine would get and lose. Nothing is changed."""
    with database(run.settings) as engine, transaction(engine) as connection:
        changes = _plan(run, connection, _whole(window), aws_clients(endpoint_url))
    _print_plan(run, changes)
    return 0


@tags.command("apply")
@click.option("--yes", is_flag=True, help="change the tags; without it nothing is done")
@ENDPOINT
@ACTOR
@window_options(MONTH)
@common
def apply_command(run: Run, window: Window, yes: bool, endpoint_url: str | None, actor: str | None) -> int:
    """Put and take away the tags of `tags plan`. Exit code 1 when any resource could not be changed; again does the rest."""
    if not yes:
        raise BadInput("is missing: tags are not changed without it", field="--yes", hint="see `tokenfuse tags plan` first")
    clients, now = aws_clients(endpoint_url), utc_now()
    with database(run.settings) as engine:
        with transaction(engine) as connection:
            changes = _plan(run, connection, _whole(window), clients)
        done = apply_tags(clients, changes, Progress("tag calls", quiet=run.as_json, every=1))
        if done:
            with transaction(engine) as connection:
                append_audit(connection, now, actor_of(actor), "tags.apply", "aws", _audit(changes, done))
    blocked = [change for change in changes if change.blocked]
    rows = [asdict(one) for one in done] + [
        {"arn": change.arn, "what": "none", "keys": (), "error": change.blocked} for change in blocked
    ]
    shown = rows if run.as_json else [{**row, "keys": ", ".join(row["keys"]), "error": row["error"] or "-"} for row in rows]
    print_rows(shown, as_json=run.as_json, empty="Nothing to change." if changes else NOTHING)
    failed = sum(bool(row["error"]) for row in rows)
    say(f"Changed: {len(rows) - failed}. Failed: {failed}.")
    return 1 if failed else 0


@tags.command()
@click.option("--yes", is_flag=True, help="activate the keys; without it their state is shown")
@click.option("--backfill-from", metavar="TIME", help="show the tags in bills from this month on (12 months back at most)")
@ENDPOINT
@REGION
@ACTOR
@common
def activate(
    run: Run, yes: bool, backfill_from: str | None, endpoint_url: str | None, region: str | None, actor: str | None
) -> int:
    """Activate our keys as cost allocation tags (needs the payer account). A key can be activated up to 24 hours after it was
    first put on a billed resource, and is in the bill up to 24 hours later."""
    clients, keys, where = aws_clients(endpoint_url), TagKeys(run.settings.aws_tag_prefix).all, _region(region)
    since = parse_time(backfill_from, "--backfill-from") if backfill_from else None
    known = cost_tags(clients, where, keys)
    todo = [one.key for one in known if one.status == "Inactive"]
    if not yes:
        _print_cost_tags(run, known)
        say(f"Would activate: {', '.join(todo) or 'nothing'}. Pass --yes to do it.")
        return 0
    made = {one.key: one for one in activate_tags(clients, where, todo)}
    back = backfill_tags(clients, where, since) if since else {}
    if made or back:
        detail = {"keys": {key: one.error or "activated" for key, one in made.items()}, "backfill": back}
        with database(run.settings) as engine, transaction(engine) as connection:
            append_audit(connection, utc_now(), actor_of(actor), "tags.activate", "aws", detail)
    result = [made.get(one.key, one) for one in known]
    _print_cost_tags(run, result, back)
    return 1 if any(one.error or not one.status for one in result) else 0


@tags.command()
@ENDPOINT
@REGION
@common
def status(run: Run, endpoint_url: str | None, region: str | None) -> None:
    """How our keys stand in the bill: Active, Inactive, or not yet seen (two calls of USD 0.01 at most)."""
    _print_cost_tags(run, cost_tags(aws_clients(endpoint_url), _region(region), TagKeys(run.settings.aws_tag_prefix).all))


def _plan(run: Run, connection: Connection, window: Window, clients: Clients) -> Sequence[TagChange]:
    machines = billed_machines(connection, window)
    named = [(machine.region, arn) for machine in machines if (arn := arn_of(machine)) is not None]
    return plan_tags(machines, read_tags(clients, named), TagKeys(run.settings.aws_tag_prefix))


def _whole(window: Window) -> Window:
    """Whole UTC days: usage is kept by them, and a tag says who a machine serves, not when."""
    day = timedelta(days=1)
    start = window.start.replace(hour=0, minute=0, second=0, microsecond=0)
    end = window.end.replace(hour=0, minute=0, second=0, microsecond=0)
    return Window(start, end if end == window.end and end > start else end + day)


def _region(given: str | None) -> str:
    region = given or default_region()
    if not region:
        raise BadInput("is not known", field="--region", hint="pass it, or set AWS_DEFAULT_REGION")
    return region


def _print_plan(run: Run, changes: Sequence[TagChange]) -> None:
    if run.as_json:
        print_json([asdict(change) for change in changes])
        return
    rows = [
        {
            "resource": change.arn, "node": change.node, "put": ", ".join(f"{k}={v}" for k, v in change.put.items()) or "-",
            "take away": ", ".join(change.drop) or "-", 
            "why not more": "; ".join((*change.notes, change.blocked)).strip("; ") or "-",
        }
        for change in changes
    ]  # fmt: skip
    print_rows(rows, as_json=False, empty=NOTHING)
    if changes:
        count = sum(change.is_change for change in changes)
        say(f"{count} of {len(changes)} resources would change. `tokenfuse tags apply --yes` does it.")


def _print_cost_tags(run: Run, found: Sequence[CostTag], back: dict[str, str] | None = None) -> None:
    if run.as_json:
        print_json({"keys": [asdict(one) for one in found], "backfill": back or None})
        return
    rows = [{"key": one.key, "status": one.status or "not seen on a billed resource yet", "last used": one.last_used or "-",
             "error": one.error or "-"} for one in found]  # fmt: skip
    print_rows(rows, as_json=False)
    if back:
        say(f"Backfill from {back['from']}: {back['status']}.")


def _audit(changes: Sequence[TagChange], done: Sequence[TagDone]) -> dict[str, Any]:
    put = {change.arn: dict(change.put) for change in changes if change.is_change}
    return {
        "changed": {one.arn: put[one.arn] if one.what == "put" else list(one.keys) for one in done if not one.error},
        "failed": {one.arn: one.error for one in done if one.error},
    }
