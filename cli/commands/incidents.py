"""``tokenfuse incidents``: what happened, the whole story of each, and what people say about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from sqlalchemy import Connection

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common
from cli.output import print_json, print_rows, say
from cli.wiring import database, utc_now
from control import incidents as control
from control.budget_watch import budget_spend
from control.incident_view import incident_row, story
from core.incident import Incident
from core.money import plain
from models.database import transaction
from models.incident_repo import list_incidents

ID = click.argument("incident_id", metavar="ID", type=click.IntRange(1, 2**62))
REASON = click.option("--reason", required=True, help="it stands in the incident's story and the audit trail")


@click.group()
def incidents() -> None:
    """Incidents: one per scope and cause while it lasts."""


@incidents.command("list")
@click.option("--open", "open_only", is_flag=True, help="only those that are not over")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@common
def list_command(run: Run, open_only: bool, limit: int) -> None:
    """The newest first."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = list_incidents(connection, is_open=True if open_only else None, limit=limit)
    rows = [incident_row(one) if run.as_json else _short(one) for one in found]
    print_rows(rows, as_json=run.as_json, empty="No incident is open." if open_only else "There was no incident.")


@incidents.command()
@ID
@common
def show(run: Run, incident_id: int) -> None:
    """The whole story: signal, numbers, decisions, what was sent, people, outcome, money after the trip."""
    with database(run.settings) as engine, transaction(engine) as connection:
        told = story(connection, incident_id, utc_now(), budget_spend)
    if run.as_json:
        print_json(told)
        return
    row = told["incident"]
    say(f"Incident {row['id']}: {row['scope']}, {row['cause']}, {row['severity']}{', in shadow' if row['shadow'] else ''}")
    people = ", ".join(told["people"]) or "none"
    say(f"Owner: {row['owner'] or 'none'}; assigned to: {row['assignee'] or 'nobody'}; people: {people}")
    if row["trip"]:
        trip = row["trip"]
        say(f"Tripped at {plain(trip['spend'])} of {plain(trip['cap'])} {trip['currency']} this {trip['period']}.")
    say(f"Money at risk: {_words(row['at_risk'], 'nothing measured it')}")
    say(f"Spent after the trip: {_words(row['overshoot'], row['overshoot_reason'])}")
    moments = [{**m, "epoch": "none" if m["epoch"] is None else m["epoch"]} for m in told["moments"]]
    print_rows(moments, as_json=False, title="Story")
    print_rows(told["sent"], as_json=False, title="Sent and done", empty="Nothing was sent.")
    tickets = [{name: t[name] for name in ("channel", "external_id", "status", "assignee", "url")} for t in told["tickets"]]
    print_rows(tickets, as_json=False, title="Tickets", empty="No ticket.")
    say(f"Outcome: {row['outcome'] or 'still open'}")


@incidents.command()
@ID
@REASON
@ACTOR
@common
def ack(run: Run, incident_id: int, reason: str, actor: str | None) -> None:
    """Say that you have seen it: no reminder follows."""
    _act(run, lambda c: control.acknowledge(c, incident_id, actor_of(actor), reason, utc_now()))


@incidents.command()
@ID
@click.option("--to", "assignee", required=True, help="whose it is from now on")
@REASON
@ACTOR
@common
def assign(run: Run, incident_id: int, assignee: str, reason: str, actor: str | None) -> None:
    """Say whose it is."""
    _act(run, lambda c: control.assign(c, incident_id, assignee, actor_of(actor), reason, utc_now()))


@incidents.command()
@ID
@click.option("--text", required=True, help="what is to be added")
@ACTOR
@common
def comment(run: Run, incident_id: int, text: str, actor: str | None) -> None:
    """Add to its story."""
    _act(run, lambda c: control.comment(c, incident_id, actor_of(actor), text, utc_now()))


def _act(run: Run, action: Callable[[Connection], Incident]) -> None:
    with database(run.settings) as engine, transaction(engine) as connection:
        after = action(connection)
    print_rows([incident_row(after) if run.as_json else _short(after)], as_json=run.as_json)


def _short(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "scope": incident.scope,
        "cause": incident.cause,
        "severity": incident.severity,
        "phase": f"{incident.phase}{' (shadow)' if incident.shadow else ''}",
        "opened_at": incident.opened_at,
        "over": incident.recovered_at or "no",
        "acknowledged_by": incident.acknowledged_by or "nobody",
        "reason": incident.reason,
    }


def _words(money: dict[str, Any] | None, unknown: str) -> str:
    return f"not known ({unknown})" if money is None else f"{plain(money['amount'])} {money['currency']}"
