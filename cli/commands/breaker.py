"""``tokenfuse breaker`` and ``audit``: what was decided, and what a person does about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click
from sqlalchemy import Connection

from cli.commands.budget import ACTOR, actor_of, amount_of
from cli.options import Run, common, parse_ahead
from cli.output import print_json, print_rows
from cli.wiring import breaker_policy, database, utc_now
from control import breakers as control
from control.budget_watch import budget_spend
from core.breaker_values import Breaker, BreakerPolicy
from core.errors import BadInput
from models.audit_repo import list_audit, verify_chain
from models.breaker_repo import list_breakers, list_events
from models.database import transaction

NAME = click.argument("breaker_name", metavar="ID|SCOPE")
REASON = click.option("--reason", required=True, help="why; it stands in the audit trail")


def _row(breaker: Breaker) -> dict[str, Any]:
    return {
        "id": breaker.id,
        "scope": breaker.scope,
        "phase": breaker.phase,
        "acting": "enforced" if breaker.enforced else "shadow",
        "epoch": breaker.epoch,
        "since": breaker.since,
        "paused_until": breaker.paused_until,
        "reason": breaker.reason,
    }


def _act(
    run: Run,
    action: Callable[[Connection, int, str, str, datetime, BreakerPolicy], Breaker],
    name: str,
    reason: str,
    actor: str | None,
) -> None:
    """Carry out an action that needs no more than a name and a reason, and show the breaker after it."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = control.find_breaker(connection, name)
        after = action(connection, found.id, actor_of(actor), reason, utc_now(), breaker_policy(run.settings))
    print_rows([_row(after)], as_json=run.as_json)


@click.group()
def breaker() -> None:
    """Breakers: one per scope with a cap."""


@breaker.command("list")
@common
def list_command(run: Run) -> None:
    """Every breaker and its state."""
    with database(run.settings) as engine, transaction(engine) as connection:
        print_rows(
            [_row(b) for b in list_breakers(connection)], as_json=run.as_json, empty="No breaker: a budget with --cap makes one."
        )


@breaker.command()
@click.argument("breaker_name", metavar="[ID|SCOPE]", required=False)
@common
def events(run: Run, breaker_name: str | None) -> None:
    """Changes of one breaker, or of all, newest first."""
    with database(run.settings) as engine, transaction(engine) as connection:
        breaker_id = control.find_breaker(connection, breaker_name).id if breaker_name else None
        print_rows(
            [asdict(e) for e in list_events(connection, 100, breaker_id)], as_json=run.as_json, empty="Nothing happened yet."
        )


@breaker.command()
@NAME
@REASON
@click.option("--read-shadow-report", is_flag=True, help="I read what it would have refused (needed before 7 days in shadow)")
@ACTOR
@common
def enforce(run: Run, breaker_name: str, reason: str, read_shadow_report: bool, actor: str | None) -> None:
    """Arm it: from now on it refuses requests when it opens."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = control.find_breaker(connection, breaker_name)
        after = control.enforce(
            connection,
            found.id,
            actor_of(actor),
            reason,
            utc_now(),
            breaker_policy(run.settings),
            read_shadow_report=read_shadow_report,
        )
    print_rows([_row(after)], as_json=run.as_json)


@breaker.command()
@NAME
@REASON
@ACTOR
@common
def shadow(run: Run, breaker_name: str, reason: str, actor: str | None) -> None:
    """Disarm it: it goes on deciding and recording, and refuses nothing."""
    _act(run, control.shadow, breaker_name, reason, actor)


@breaker.command()
@NAME
@REASON
@ACTOR
@common
def approve(run: Run, breaker_name: str, reason: str, actor: str | None) -> None:
    """Review: re-closes a degraded breaker, or signs an open one's re-close at the end of its period."""
    _act(run, control.approve, breaker_name, reason, actor)


@breaker.command()
@NAME
@REASON
@click.option("--new-cap", help="allowance: a new cap for good")
@click.option("--extra", help="allowance: this much more, with --until")
@click.option("--until", metavar="TIME", help="end of --extra: a time or a span such as 24h")
@ACTOR
@common
def reset(
    run: Run, breaker_name: str, reason: str, new_cap: str | None, extra: str | None, until: str | None, actor: str | None
) -> None:
    """Re-close an open breaker. Needs a reason and an allowance; without one it is refused."""
    now = utc_now()
    if (extra is None) != (until is None):
        raise BadInput("go together", field="--extra and --until", hint="for example --extra 50 --until 24h")
    allowance = None
    if new_cap or extra:
        allowance = control.AllowanceRequest(
            new_cap=amount_of(new_cap, "--new-cap") if new_cap else None,
            extra=amount_of(extra, "--extra") if extra else None,
            until=parse_ahead(until, "--until", now) if until else None,
        )
    with database(run.settings) as engine, transaction(engine) as connection:
        found = control.find_breaker(connection, breaker_name)
        after = control.reset(
            connection, found.id, actor_of(actor), reason, allowance, now, breaker_policy(run.settings), budget_spend
        )
    print_rows([_row(after)], as_json=run.as_json)


@breaker.command()
@click.option("--all", "everything", is_flag=True, required=True, help="every breaker and standing limit")
@click.option("--for", "span", metavar="SPAN", help="how long, such as 2h; leave out with --end")
@click.option("--end", "end_pause", is_flag=True, help="end a running pause")
@REASON
@ACTOR
@common
def pause(run: Run, everything: bool, span: str | None, end_pause: bool, reason: str, actor: str | None) -> None:
    """Break-glass from the centre: guards let everything pass until then."""
    now = utc_now()
    if end_pause == bool(span):
        raise BadInput("give one of the two", field="--for, --end", hint="for example --for 2h")
    until = parse_ahead(span, "--for", now) if span else None
    with database(run.settings) as engine, transaction(engine) as connection:
        paused = control.pause_all(connection, actor_of(actor), reason, until, now, breaker_policy(run.settings))
    print_rows([_row(b) for b in paused], as_json=run.as_json, empty="No breaker yet; standing limits are paused too.")


@click.group()
def audit() -> None:
    """The audit trail: a hash chain nobody can quietly edit."""


@audit.command("list")
@click.option("--limit", "most", type=click.IntRange(1, 10_000), default=50, show_default=True)
@common
def audit_list(run: Run, most: int) -> None:
    """The newest records (their hashes with --json)."""
    with database(run.settings) as engine, transaction(engine) as connection:
        records = [asdict(record) for record in list_audit(connection, most)]
    if not run.as_json:
        records = [{name: value for name, value in record.items() if name not in ("prev_hash", "hash")} for record in records]
    print_rows(records, as_json=run.as_json, empty="Nothing was recorded yet.")


@audit.command()
@click.option("--anchor", help="a hash noted earlier, outside this database")
@common
def verify(run: Run, anchor: str | None) -> int:
    """Walk the chain; exit 1 naming the first broken record."""
    with database(run.settings) as engine, transaction(engine) as connection:
        verdict = verify_chain(connection, anchor)
    if run.as_json:
        print_json(asdict(verdict))
    else:
        print_rows([asdict(verdict)], as_json=False)
    return 0 if verdict.intact else 1
