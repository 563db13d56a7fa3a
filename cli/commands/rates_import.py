"""``tokenfuse rates import``: files of prices, one function a format. A new format is a row of ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from sqlalchemy import Connection

from cli.options import Run, common
from cli.output import bullet_list, print_json, print_rows, say
from cli.wiring import database, utc_now
from control.ledger_close import import_rates
from core.errors import BadInput
from ingest.prices.fx_files import read_fx_file
from ingest.prices.rate_card import read_rate_card
from models.audit_repo import append_audit
from models.database import transaction
from models.fx_repo import add_fx


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What a person said beside the files. ``region``: of a price list that holds several."""

    region: str = ""
    dry_run: bool = False


Importer = Callable[[Run, tuple[Path, ...], ImportOptions], None]
"""Reads the files of one format into the database (``import_transaction``) and prints what is new, changed and refused."""


@contextmanager
def import_transaction(run: Run, options: ImportOptions) -> Iterator[Connection]:
    """One transaction over the whole import; a dry run does the same work and takes it back."""
    with database(run.settings) as engine:
        if not options.dry_run:
            with transaction(engine) as connection:
                yield connection
            return
        with engine.connect() as connection:
            yield connection
            connection.rollback()


def one_file(files: tuple[Path, ...], format_: str) -> Path:
    """The only file. Raises BadInput for several."""
    if len(files) > 1:
        raise BadInput("takes one file at a time", field="--format", value=format_)
    return files[0]


def import_card(run: Run, files: tuple[Path, ...], options: ImportOptions) -> None:
    """A YAML rate card, see ``ingest.prices.rate_card``."""
    card, now = read_rate_card(one_file(files, "card")), utc_now()
    with import_transaction(run, options) as connection:
        new = import_rates(connection, card.rates, now)
        append_audit(
            connection, now, "command line", "rates.import", f"card:{card.label}", {"rates": len(card.rates), "new": new}
        )
    if run.as_json:
        print_json({"label": card.label, "rates": len(card.rates), "new": new, "dry_run": options.dry_run})
        return
    kept = "Nothing was kept (dry run)." if options.dry_run else "Closed windows they touch are closed again as a new version."
    say(f"{card.label}: {len(card.rates)} prices, {new} of them new. {kept}")


def import_fx(run: Run, files: tuple[Path, ...], options: ImportOptions, form: str) -> None:
    """Exchange rates, see ``ingest.prices.fx_files``. A changed rate of a day is a new row; the last one holds."""
    now = utc_now()
    found = [read_fx_file(file, form, now.date()) for file in files]
    rates = [rate for one in found for rate in one.rates]
    refused = [reason for one in found for reason in one.refused]
    with import_transaction(run, options) as connection:
        added = add_fx(connection, rates, now)
        changes = [{"day": new.day, "base": new.base, "quote": new.quote, "was": old.rate, "now": new.rate,
                    "source": new.source} for old, new in added.changed]  # fmt: skip
        counts = {"new": added.new, "changed": len(changes), "unchanged": added.unchanged, "refused": len(refused)}
        append_audit(connection, now, "command line", "rates.import", f"fx:{files[0].name}", counts)
    if run.as_json:
        print_json({**counts, "changes": changes, "reasons": refused, "dry_run": options.dry_run})
        return
    print_rows(changes[:20], as_json=False, title="Changed", empty="")
    if refused:
        say("Refused:\n" + bullet_list(refused[:20]))
    kept = " Nothing was kept (dry run)." if options.dry_run else ""
    say(f"{added.new} new, {len(changes)} changed, {added.unchanged} known already, {len(refused)} refused.{kept}")


FORMATS: Mapping[str, Importer] = {
    "card": import_card,
    "fx": partial(import_fx, form="fx"),
    "ecb": partial(import_fx, form="ecb"),
}


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@click.option("--format", "format_", default="card", show_default=True, type=click.Choice(sorted(FORMATS)))
@click.option("--region", default="", metavar="CODE", help="region of a price list that holds several, for example us-east-1")
@click.option("--dry-run", is_flag=True, help="read everything and show what would change; nothing is kept")
@common
def import_command(run: Run, files: tuple[Path, ...], format_: str, region: str, dry_run: bool) -> None:
    """Take prices in. A price change is a new dated entry; the same file twice changes nothing.

    card: a YAML rate card of your own. fx: exchange rates as CSV (day,base,quote,rate,source). ecb: the European Central Bank's
    eurofxref-hist.csv or .zip.
    """
    FORMATS[format_](run, files, ImportOptions(region, dry_run))
