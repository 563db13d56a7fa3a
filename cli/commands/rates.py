"""``tokenfuse rates``: dated prices."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, timedelta

import click

from cli.commands.rates_discount import discount
from cli.commands.rates_import import import_command
from cli.commands.rates_vendor import vendor
from cli.options import Run, common, parse_time
from cli.output import print_rows
from cli.wiring import database, utc_now
from models.database import transaction
from models.fx_repo import FxDays, fx_days, read_fx
from models.rates_repo import read_rates


@click.group()
def rates() -> None:
    """Dated prices: import them, list what holds."""


rates.add_command(import_command)
rates.add_command(discount)
rates.add_command(vendor)


@rates.command("list")
@common
def list_command(run: Run) -> None:
    """Every price, as imported, and those that typed discounts make of list prices."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = read_rates(connection)
    rows = [
        {
            "kind": rate.kind,
            "sku": rate.sku,
            "price": rate.price.amount,
            "currency": rate.price.currency,
            "charge_basis": rate.charge_basis,
            "band": "" if rate.band is None else str(rate.band),
            "valid_from": rate.valid_from,
            "valid_to": rate.valid_to,
            "source": rate.source,
        }
        for rate in found
    ]
    print_rows(rows, as_json=run.as_json, empty="No price yet: tokenfuse rates import FILE")


@rates.group()
def fx() -> None:
    """Exchange rates: what is known."""


@fx.command("list")
@click.option("--pair", metavar="XXX/YYY", help="only this pair, either way round")
@click.option("--from", "from_", metavar="DAY", help="first day (default: 30 days ago)")
@common
def fx_list(run: Run, pair: str | None, from_: str | None) -> None:
    """Rates in force, the newest day first: one unit of base is so many of quote."""
    since = parse_time(from_, "--from").date() if from_ else utc_now().date() - timedelta(days=30)
    named = None if pair is None else [code.strip().upper() for code in pair.split("/")]
    with database(run.settings) as engine, transaction(engine) as connection:
        found = read_fx(connection, since, date.max, named)
        older = fx_days(connection, since, named)
    held = {(rate.day, rate.base, rate.quote): rate for rate in found}
    rows = [asdict(held[key]) for key in sorted(held, key=lambda key: (-key[0].toordinal(), *key[1:]))]
    print_rows(rows, as_json=run.as_json, empty=_no_rate(since, named, older))


def _no_rate(since: date, named: list[str] | None, older: FxDays) -> str:
    """Why the list is empty: nothing is known at all, or only rates of days before it."""
    pair = f" {'/'.join(named)}" if named else ""
    if older.first is None or older.last is None:
        return f"No exchange rate{pair} yet: tokenfuse rates import FILE --format fx|ecb"
    days = f"of {older.first}" if older.first == older.last else f"from {older.first} to {older.last}"
    return f"No exchange rate{pair} since {since}; older ones: {older.count:,}, {days}. Show them: --from {older.first}"
