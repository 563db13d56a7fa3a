"""``tokenfuse outbox``: what waits to be sent, what was given up and why, and sending it again."""

from __future__ import annotations

import click

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common
from cli.output import print_rows
from cli.wiring import database, utc_now
from control.dead_letters import resend
from models.database import transaction
from models.outbox_repo import list_effects


@click.group()
def outbox() -> None:
    """Messages and actions: waiting, sent, given up."""


@outbox.command("list")
@click.option("--failed", "state", flag_value="failed", help="only those that were given up")
@click.option("--pending", "state", flag_value="pending", help="only those that wait")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@common
def list_command(run: Run, state: str | None, limit: int) -> None:
    """The newest first, with the last error."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = list_effects(connection, state, limit)
    shown = rows if run.as_json else [{**row, "done_at": row["done_at"] or "not yet"} for row in rows]
    empty = {"failed": "Nothing was given up.", "pending": "Nothing waits."}.get(state or "", "Nothing was sent yet.")
    print_rows(shown, as_json=run.as_json, empty=empty)


@outbox.command("resend")
@click.argument("outbox_id", metavar="ID", type=click.IntRange(1, 2**62))
@click.option("--reason", required=True, help="it stands in the audit trail")
@ACTOR
@common
def resend_command(run: Run, outbox_id: int, reason: str, actor: str | None) -> None:
    """Try an effect that was given up again, with the same key; the control loop does it."""
    with database(run.settings) as engine, transaction(engine) as connection:
        row = resend(connection, outbox_id, actor_of(actor), reason, utc_now())
    print_rows([row], as_json=run.as_json)
