"""``tokenfuse match``, ``show unmatched`` and ``show nodes``: which machine a charge is of, what is left, what machines cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click
from sqlalchemy import Connection

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common, parse_time, window_options
from cli.output import bullet_list, print_json, print_rows, say
from cli.settings import Settings
from cli.wiring import database, utc_now
from control.charge_join import (
    JoinPlace,
    MatchOutcome,
    Rejoined,
    confirm_match,
    ignore_resource,
    moved_words,
    rejoin,
    undo,
)
from control.node_rates import node_rates
from control.unmatched import money_of, unmatched
from core.money import plain
from core.windows import Window
from models.database import transaction
from models.join_repo import ChargeMatch, read_matches

DRY_RUN = click.option("--dry-run", is_flag=True, help="show what would move, with its money; nothing is kept")


def join_place(settings: Settings) -> JoinPlace:
    return JoinPlace(settings.data_dir, settings.node_tags)


@click.group()
def match() -> None:
    """Which machine of the inventory a charge of a bill belongs to."""


@match.command("list")
@click.option("--all", "every", is_flag=True, help="those taken back too")
@common
def list_command(run: Run, every: bool) -> None:
    """What people said of resources."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = read_matches(connection, undone=every)
    rows = [_row(one) for one in found]
    print_rows(rows, as_json=run.as_json, empty="Nobody confirmed or ignored a resource: `tokenfuse show unmatched` lists them.")


@match.command("run")
@DRY_RUN
@common
def run_command(run: Run, dry_run: bool) -> None:
    """Join all bills in force with the inventory as it is now (the control loop does so by itself)."""
    found = _in_transaction(run, dry_run, lambda connection, now: rejoin(connection, join_place(run.settings), now))
    if run.as_json:
        print_json({"dry_run": dry_run, **_rejoined(found)})
        return
    say(f"{found.looked_at} deliveries were looked at, {found.joined} of them changed.")
    _say_moved(found, dry_run)


@match.command()
@click.argument("resource")
@click.argument("node")
@click.option("--from", "from_", metavar="TIME", help="since this whole UTC hour (default: always)")
@click.option("--to", metavar="TIME", help="before this whole UTC hour (default: always)")
@click.option("--reason", default="", help="for the audit trail")
@DRY_RUN
@ACTOR
@common
def confirm(
    run: Run, resource: str, node: str, from_: str | None, to: str | None, reason: str, dry_run: bool, actor: str | None
) -> None:
    """RESOURCE (as the bill writes it) is NODE (CLUSTER/NODE, or NODE): its charges are that machine's."""
    since, until = (parse_time(text, option) if text else None for text, option in ((from_, "--from"), (to, "--to")))

    def act(connection: Connection, now: datetime) -> MatchOutcome:
        place = join_place(run.settings)
        return confirm_match(
            connection, place, resource, node, actor_of(actor), now, reason=reason, valid_from=since, valid_to=until
        )

    _show(run, _in_transaction(run, dry_run, act), dry_run)


@match.command()
@click.argument("resource")
@click.option("--reason", required=True, help="why it is no machine of ours")
@DRY_RUN
@ACTOR
@common
def ignore(run: Run, resource: str, reason: str, dry_run: bool, actor: str | None) -> None:
    """RESOURCE is no machine of ours: it is shown apart from what is to be worked through."""

    def act(connection: Connection, now: datetime) -> MatchOutcome:
        return ignore_resource(connection, join_place(run.settings), resource, actor_of(actor), now, reason=reason)

    _show(run, _in_transaction(run, dry_run, act), dry_run)


@match.command("undo")
@click.argument("match_id", metavar="ID", type=int)
@DRY_RUN
@ACTOR
@common
def undo_command(run: Run, match_id: int, dry_run: bool, actor: str | None) -> None:
    """Take a confirmation or an ignored resource back, by the id `match list` shows."""

    def act(connection: Connection, now: datetime) -> MatchOutcome:
        return undo(connection, join_place(run.settings), match_id, actor_of(actor), now)

    _show(run, _in_transaction(run, dry_run, act), dry_run)


def _in_transaction(run: Run, dry_run: bool, act: Callable[[Connection, datetime], Any]) -> Any:
    """The same work either way; a dry run is rolled back."""
    with database(run.settings) as engine:
        if not dry_run:
            with transaction(engine) as connection:
                return act(connection, utc_now())
        with engine.connect() as connection:
            found = act(connection, utc_now())
            connection.rollback()
            return found


def _row(one: ChargeMatch) -> dict[str, Any]:
    told = {"id": one.id, "resource": one.resource_id, "node": f"{one.cluster}/{one.node}" if one.node else "ignored"}
    undone = {"undone_by": one.undone_by, "undone_at": one.undone_at} if one.undone_at else {}
    times = {"since": one.valid_from or "always", "until": one.valid_to}
    return {**told, **times, "by": one.made_by, "at": one.made_at, "reason": one.reason, **undone}


def _rejoined(found: Rejoined) -> dict[str, Any]:
    return {
        "deliveries": found.looked_at,
        "changed": found.joined,
        "windows_to_close_again": found.marked,
        "moved": [asdict(row) for row in found.moved],
    }


def _show(run: Run, outcome: MatchOutcome, dry_run: bool) -> None:
    if run.as_json:
        made = {} if dry_run else {"match": _row(outcome.match)}
        print_json({"dry_run": dry_run, "changed_match": outcome.changed, **made, **_rejoined(outcome.rejoined)})
        return
    if not outcome.changed:
        say(f"It stands so already (match {outcome.match.id}).")
    elif not dry_run:
        say(f"Match {outcome.match.id} is noted; `tokenfuse match undo {outcome.match.id}` takes it back.")
    _say_moved(outcome.rejoined, dry_run)


def _say_moved(found: Rejoined, dry_run: bool) -> None:
    if not found.moved:
        say("No money moves." if dry_run else "No money moved.")
        return
    say(f"Money {'would move' if dry_run else 'moved'}; {found.marked} closed quarter hours are closed again:")
    say(bullet_list(moved_words(found.moved)))


@click.command("unmatched")
@window_options(None)
@common
def unmatched_command(run: Run, window: Window) -> None:
    """Charges of machines that are none of the inventory's, and machines whose hours a bill covers without a charge of theirs."""
    context = click.get_current_context()
    chosen = window if any(context.params.get(name) is not None for name in ("from_", "to")) else None
    with database(run.settings) as engine, transaction(engine) as connection:
        found = unmatched(connection, utc_now(), chosen)
    if run.as_json:
        print_json(found)
        return
    if not found["deliveries"]:
        say("No bill was imported: `tokenfuse ingest bill SOURCE --format F`.")
        return
    if found["not_joined"]:
        say(f"{found['not_joined']} deliveries are not joined yet: the control loop does it, or `tokenfuse match run`.")
    total = ", ".join(f"{plain(amount)} {currency}" for currency, amount in sorted(money_of(found["charges"]).items()))
    title = f"Charges of no machine: {total or 'none'} effective. Confirm: `tokenfuse match confirm RESOURCE NODE`"
    print_rows(
        [_charge(row) for row in found["charges"]], as_json=False, title=title, empty="Every charge of a machine is matched."
    )
    nodes = [_node(row) for row in found["nodes"]]
    print_rows(nodes, as_json=False, title="Machines without a charge", empty="Every machine has its charges where a bill came.")
    if found["ignored"]:
        print_rows([_charge(row) for row in found["ignored"]], as_json=False, title="Ignored")


def _charge(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "resource": row["resource_id"] or "(none)",
        "type": row["instance_type"],
        "bucket": ", ".join(row["buckets"]),
        "first_day": "not told" if row["first_at"] is None else row["first_at"].date(),
        "last_day": "not told" if row["last_at"] is None else (row["last_at"] - timedelta(microseconds=1)).date(),
        "currency": row["currency"],
        "effective": row["effective_cost"],
        "billed": row["billed_cost"],
        "why": row["reason_text"],
        "suggestion": _suggestion(row, "node"),
    }


def _node(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "node": f"{row['cluster']}/{row['node']}" if row["node"] else f"no node is named for {', '.join(row['targets'])}",
        "gpus": f"{row['gpu_count']} × {row['gpu_type']}",
        "serves": ", ".join(row["deployments"]),
        "first": row["first_at"],
        "last": row["last_at"],
        "gpu_hours": row["gpu_hours"],
        "suggestion": _suggestion(row, "resource_id"),
    }


def _suggestion(row: Mapping[str, Any], key: str) -> str:
    found = row["suggestion"]
    return f"{found[key]} ({found['score']}: {found['reason']})" if found else "none"


@click.command("nodes")
@click.option("--by-hour", is_flag=True, help="a row for each hour")
@window_options(timedelta(days=31))
@common
def nodes(run: Run, by_hour: bool, window: Window) -> None:
    """What machines cost by the bills: per hour and GPU-hour, by GPU, CPU and memory; hours in which nothing served."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = node_rates(connection, window, by_hour=by_hour)
    empty = "No bill charges a machine in this time range: `tokenfuse show unmatched` says what is left."
    if run.as_json or not rows:
        print_rows(rows, as_json=run.as_json, empty=empty)
        return
    print_rows([_cost(row) for row in rows], as_json=False, title="What machines cost")
    print_rows([_rate(row) for row in rows], as_json=False, title="Per hour, and parts of the effective cost")
    say("Parts of the effective cost: " + "; ".join(sorted({row["parts_rule"] for row in rows})) + ".")


def _machine(row: Mapping[str, Any]) -> dict[str, Any]:
    hour = {"hour": row["hour"]} if "hour" in row else {}
    return {**hour, "node": f"{row['cluster']}/{row['node']}"}


def _cost(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_machine(row),
        "type": row["instance_type"],
        "hours": row["hours"],
        "effective": row["effective_cost"],
        "currency": row["currency"],
        "unassigned_gpu_hours": row["unassigned_gpu_hours"],
        "unassigned": row["unassigned_cost"],
        "final": row["is_final"],
    }


def _rate(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_machine(row),
        "effective": row["effective_per_hour"],
        "billed": row["billed_per_hour"],
        "list": row["list_per_hour"],
        "per_gpu_hour": row["effective_per_gpu_hour"],
        "gpu_part": None if row["gpu_cost"] is None else sum(row["gpu_cost"].values()),
        "cpu_part": row["cpu_cost"],
        "memory_part": row["memory_cost"],
    }
