"""``tokenfuse ledger``: close what is due, show the lines and that they sum to the capacity cost."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from datetime import timedelta

import click

from cli.commands.period import close_command, periods, statement_command
from cli.money_in import currency_options, print_in_currency
from cli.options import Run, common, parse_time, window_options
from cli.output import Progress, print_json, print_rows, say
from cli.wiring import close_settings, database, utc_now
from control.ledger_close import close_all, ledger_show
from control.money_in import asked_currency, ledger_in
from core.windows import Window
from models.database import transaction


@click.group()
def ledger() -> None:
    """The ledger of quarter hours, and the months it is sent by."""


for _command in (close_command, periods, statement_command):
    ledger.add_command(_command)


@ledger.command()
@click.option("--since", metavar="TIME", help="do not look further back than this")
@click.option("--no-grace", is_flag=True, help="close every ended quarter hour now, without waiting for late usage")
@common
def close(run: Run, since: str | None, no_grace: bool) -> int:
    """Close every due quarter hour; unchanged ones make no new version. Held while the stream is catching up; a stopped
    stream does not hold it: usage it has yet to count closes its quarter hours again."""
    settings = replace(close_settings(run.settings), silence_holds=False)
    if no_grace:
        settings = replace(settings, grace=timedelta(0))
    with database(run.settings) as engine:
        report = close_all(
            engine,
            utc_now(),
            settings,
            since=parse_time(since, "--since") if since else None,
            progress=Progress("quarter hours", every=500),
        )
    if run.as_json:
        print_json(asdict(report))
    else:
        if report.held:
            say(f"Held: {report.held}")
        say(
            f"{report.closed} closed, {report.reclosed} closed again, {report.unchanged} unchanged, "
            f"{report.unpriced} without a price."
        )
    for failure in report.failures:
        say(f"failed: {failure}")
    return 1 if report.failures else 0


@ledger.command()
@click.option(
    "--by", default="kind", show_default=True, metavar="COLS", help="keys: kind, deployment, team, user, token_kind, hour, day …"
)
@click.option("--as-of", metavar="TIME", help="as it stood then: versions written later are left out")
@currency_options
@window_options(timedelta(days=1))
@common
def show(run: Run, by: str, as_of: str | None, into: str | None, via: str, window: Window) -> int:
    """Lines of the quarter hours that start in the window, and their difference to the capacity cost (0, or it is broken)."""
    keys = [key.strip() for key in by.split(",") if key.strip()]
    at, converted = parse_time(as_of, "--as-of") if as_of else None, None
    with database(run.settings) as engine, transaction(engine) as connection:
        shown = ledger_show(connection, window, by=keys, as_of=at, zone_name=run.settings.zone)
        if into is not None:
            to = asked_currency(into, run.settings.currency, "--in")
            converted = ledger_in(connection, keys, window, to, via=via, zone_name=run.settings.zone, as_of=at)
    broken = any(total["difference"] for total in shown["totals"])
    empty = "No closed quarter hour in this time range."
    if run.as_json:
        print_json({**shown, "in": converted} if converted else shown)
    else:
        if converted:
            print_in_currency(run, converted, empty)
        else:
            print_rows(shown["rows"], as_json=False, title="Ledger lines (allocation basis)", empty=empty)
        print_rows(shown["totals"], as_json=False, title="Do the lines close on the capacity cost?")
        print_rows(
            shown["states"], as_json=False, title="By rates (provisional), by bills (trued_up), by issued invoices (final)"
        )
        if shown["unpriced"]:
            print_rows(shown["unpriced"], as_json=False, title="Without a price")
    if broken:
        sys.stderr.write("the ledger does not close: see the difference above\n")
    return 1 if broken else 0
