"""``tokenfuse rates``: dated prices."""

from __future__ import annotations

import click

from cli.commands.rates_import import import_command
from cli.options import Run, common
from cli.output import print_rows
from cli.wiring import database
from models.database import transaction
from models.rates_repo import read_rates


@click.group()
def rates() -> None:
    """Dated prices: import them, list what holds."""


rates.add_command(import_command)


@rates.command("list")
@common
def list_command(run: Run) -> None:
    """Every price, as imported."""
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
