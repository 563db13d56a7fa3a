"""``tokenfuse rates``: dated prices."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import Run, common
from cli.output import print_json, print_rows, say
from cli.wiring import database, utc_now
from control.ledger_close import import_rates
from ingest.prices.rate_card import read_rate_card
from models.audit_repo import append_audit
from models.database import transaction
from models.rates_repo import read_rates


@click.group()
def rates() -> None:
    """Dated prices: import a card, list what holds."""


@rates.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@common
def import_command(run: Run, file: Path) -> None:
    """Take the prices of a YAML rate card. A price change is a new dated entry; the same card twice changes nothing."""
    card, now = read_rate_card(file), utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        new = import_rates(connection, card.rates, now)
        append_audit(
            connection, now, "command line", "rates.import", f"card:{card.label}", {"rates": len(card.rates), "new": new}
        )
    if run.as_json:
        print_json({"label": card.label, "rates": len(card.rates), "new": new})
    else:
        say(
            f"{card.label}: {len(card.rates)} prices, {new} of them new. "
            "Closed windows they touch are closed again as a new version."
        )


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
            "valid_from": rate.valid_from,
            "valid_to": rate.valid_to,
            "source": rate.source,
        }
        for rate in found
    ]
    print_rows(rows, as_json=run.as_json, empty="No price yet: tokenfuse rates import FILE")
