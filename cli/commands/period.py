"""``tokenfuse ledger close-period | periods | statement``: months, and what was sent of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, cast

import click

from cli.commands.budget import actor_of
from cli.options import Run, common, parse_time
from cli.output import print_json, print_rows, say
from cli.wiring import database, utc_now
from control.statement import ACCEPTABLE, DEFAULT_BY, KEYS, PeriodCheck, Statement, close_period, statement
from control.statement_view import check_row, period_row, statement_view
from core.errors import BadInput
from core.money import plain
from core.statement import IDLE_POLICIES, IdlePolicy
from core.unit_cost import COST_BASES, CostBasis
from models.database import transaction
from models.period_repo import closed_periods

MONTH_HINT = "write a month, for example 2026-07"


def parse_month(text: str) -> date:
    """The first day of ``2026-07``. Raises BadInput."""
    try:
        if not re.fullmatch(r"2[01]\d{2}-\d{2}", text):
            raise ValueError(text)
        return date.fromisoformat(f"{text}-01")
    except ValueError as error:
        raise BadInput("is no month", field="MONTH", value=text, hint=MONTH_HINT) from error


@click.command("close-period")
@click.argument("month", metavar="MONTH")
@click.option("--reason", required=True, help="why now: for example 'invoice issued'")
@click.option("--by", "actor", metavar="NAME", help="who closes it (default: you)")
@click.option("--accept", multiple=True, type=click.Choice(ACCEPTABLE), help="close although quarter hours are so; may repeat")
@click.option("--dry-run", is_flag=True, help="say what stands of the month and what is in the way; change nothing")
@common
def close_command(run: Run, month: str, reason: str, actor: str | None, accept: tuple[str, ...], dry_run: bool) -> int:
    """Close a MONTH of the reporting zone: its statement stays as it is, later changes are posted in the next open month's."""
    first = parse_month(month)
    with database(run.settings) as engine, transaction(engine) as connection:
        check = close_period(
            connection, first, run.settings.zone, by=actor_of(actor), reason=reason, now=utc_now(), accept=accept, dry_run=dry_run
        )
    if run.as_json:
        print_json(check_row(check))
    else:
        _say_check(check, month)
    return 1 if check.refusal else 0


@click.command("periods")
@common
def periods(run: Run) -> None:
    """Closed months: when, by whom, why, and what stood on their statements."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = [period_row(period) for period in closed_periods(connection)]
    if run.as_json:
        print_json(rows)
        return
    shown = [{**row, "money": _listed(row["money"]), "states": _listed(row["states"])} for row in rows]
    print_rows(shown, as_json=False, title="Closed months", empty="No month is closed: tokenfuse ledger close-period 2026-07 …")


@click.command("statement")
@click.argument("month", metavar="MONTH")
@click.option("--by", "keys", default=",".join(DEFAULT_BY), show_default=True, metavar="COLS", help=f"keys: {', '.join(KEYS)}")
@click.option("--as-of", metavar="TIME", help="as it was known then; a closed month stays as it was closed")
@click.option(
    "--basis", type=click.Choice(COST_BASES), default="allocation", show_default=True, help="with idle time, or without"
)
@click.option("--idle", type=click.Choice(IDLE_POLICIES), default="apart", show_default=True, help="who bears idle time")
@common
def statement_command(run: Run, month: str, keys: str, as_of: str | None, basis: str, idle: str) -> None:
    """What a MONTH's usage cost, as it stood when the month was closed, and corrections of closed months before it."""
    by = tuple(key.strip() for key in keys.split(",") if key.strip())
    with database(run.settings) as engine, transaction(engine) as connection:
        found = statement(
            connection, parse_month(month), run.settings.zone, utc_now(), by=by, basis=cast(CostBasis, basis),
            idle=cast(IdlePolicy, idle),
            as_of=parse_time(as_of, "--as-of") if as_of else None,
        )  # fmt: skip
    view = statement_view(found)
    if run.as_json:
        print_json(view)
    else:
        _say_statement(found, view, month)


def _say_check(check: PeriodCheck, month: str) -> None:
    money = _listed({c: plain(amount) for c, amount in check.totals.items()}) or "no money"
    say(f"{month}: {money}; quarter hours {_listed(check.standing.states) or 'none'}.")
    if check.refusal:
        say(f"Not closed: {check.refusal}. To close it anyway: {' '.join(f'--accept {word}' for word in check.accept)}")
    elif check.closed_at is None:
        say("Nothing is in the way. Without --dry-run it is closed.")
    else:
        say(f"Closed at {check.closed_at:%Y-%m-%dT%H:%M:%SZ}: its statement stays as it is now.")


def _say_statement(found: Statement, view: Mapping[str, Any], month: str) -> None:
    state = f"closed {found.closed_at:%Y-%m-%dT%H:%MZ}" if found.closed_at else "open: it may change"
    say(f"Statement of {month} ({state}), {found.basis} basis: {found.idle_words}.")
    for section, title in (("own", "Own cost"), ("correction", "Corrections of closed months")):
        rows = [_shown(row) for row in view["rows"] if row["section"] == section]
        if rows or section == "own":
            print_rows(rows, as_json=False, title=title, empty="No closed quarter hour with a price in this month.")
    print_rows(view["totals"], as_json=False, title="Total", empty="Nothing to charge.")
    if view["not_shared"]:
        print_rows(view["not_shared"], as_json=False, title="Charges that no shared cost rule takes: on no row above")
    say(f"Quarter hours: {_listed(found.states) or 'none'}; {found.unpriced} without a price, {found.waiting} to be closed.")
    if found.kept_at is not None:
        say(f"Shared and unassigned money as kept {found.kept_at:%Y-%m-%dT%H:%M:%SZ}.")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    left = ("section",) if row["section"] == "correction" else ("section", "month", "why")
    return {name: value for name, value in row.items() if name not in left}


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{value} {name}" for name, value in values.items())
