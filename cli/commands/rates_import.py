"""``tokenfuse rates import``: files of prices, one function a format. A new format is a row of ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from sqlalchemy import Connection

from cli.commands.rates_vendor import READERS, import_vendor_list
from cli.options import Run, common
from cli.output import bullet_list, print_json, print_rows, say
from cli.wiring import database, utc_now
from control.ledger_close import import_rates
from core.errors import BadInput
from core.fx_guard import guard_fx
from core.price_list import chain, compare, sheet_rates
from core.rates import Rate
from ingest.prices.aws_price_list import machines, read_price_list
from ingest.prices.fx_files import read_fx_file
from ingest.prices.rate_card import read_rate_card
from models.audit_repo import AWS_PRICE_LIST, append_audit, imported_lists
from models.database import transaction
from models.fx_repo import add_fx, read_fx
from models.rates_repo import lock_prices, read_rates

SHOWN = 20
"""Rows printed for people; ``--json`` has all."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What a person said beside the files. ``region``: of a price list that holds several."""

    region: str = ""
    dry_run: bool = False
    list_date: str = ""
    """Of a list of model vendors: the day it is of, where its file name does not say."""
    since: str = ""
    """Of a list of model vendors: from when prices of models never seen before hold (default: the list's date)."""
    confirm_jump: bool = False
    """Of exchange rates: those far from the nearest known day's are right."""


Importer = Callable[[Run, tuple[Path, ...], ImportOptions], int]
"""Reads the files of one format into the database (``import_transaction``), prints what is new, changed and refused, and says how
many lines or prices were refused."""


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


def import_card(run: Run, files: tuple[Path, ...], options: ImportOptions) -> int:
    """A YAML rate card, see ``ingest.prices.rate_card``: taken whole or not at all."""
    card, now = read_rate_card(one_file(files, "card")), utc_now()
    with import_transaction(run, options) as connection:
        new = import_rates(connection, card.rates, now)
        append_audit(
            connection, now, "command line", "rates.import", f"card:{card.label}", {"rates": len(card.rates), "new": new}
        )
    if run.as_json:
        print_json({"label": card.label, "rates": len(card.rates), "new": new, "dry_run": options.dry_run})
        return 0
    kept = "Nothing was kept (dry run)." if options.dry_run else "Closed windows they touch are closed again as a new version."
    say(f"{card.label}: {len(card.rates)} prices, {new} of them new. {kept}")
    return 0


def import_fx(run: Run, files: tuple[Path, ...], options: ImportOptions, form: str) -> int:
    """Exchange rates, see ``ingest.prices.fx_files``, guarded by ``core.fx_guard``. A changed rate of a day is a new row; the
    last one holds."""
    now = utc_now()
    found = [read_fx_file(file, form, now.date()) for file in files]
    given = [rate for one in found for rate in one.given]
    with import_transaction(run, options) as connection:
        known = read_fx(connection)
        guarded = guard_fx(given, known, jumps_confirmed=options.confirm_jump)
        refused = [*(reason for one in found for reason in one.refused), *guarded.refused]
        added = add_fx(connection, guarded.kept, now, known)
        changes = [{"day": new.day, "base": new.base, "quote": new.quote, "was": old.rate, "now": new.rate,
                    "source": new.source} for old, new in added.changed]  # fmt: skip
        counts = {"new": added.new, "changed": len(changes), "unchanged": added.unchanged, "refused": len(refused)}
        detail = {**counts, **({"confirm_jump": True} if options.confirm_jump else {})}
        append_audit(connection, now, "command line", "rates.import", f"fx:{files[0].name}", detail)
    if run.as_json:
        print_json({**counts, "changes": changes, "reasons": refused, "dry_run": options.dry_run})
        return len(refused)
    print_rows(changes[:SHOWN], as_json=False, title="Changed", empty="")
    if refused:
        say(f"Refused{_of(refused)}:\n" + bullet_list(refused[:SHOWN]))
    kept = " Nothing was kept (dry run)." if options.dry_run else ""
    say(f"{added.new} new, {len(changes)} changed, {added.unchanged} known already, {len(refused)} refused.{kept}")
    return len(refused)


def import_aws_price_list(run: Run, files: tuple[Path, ...], options: ImportOptions) -> int:
    """Versions of the AWS Price List, see ``ingest.prices.aws_price_list``; several files are put in order of their dates."""
    read = [sheet for file in files for sheet in read_price_list(file, options.region)]
    now = utc_now()
    with import_transaction(run, options) as connection:
        lock_prices(connection, shared=False)
        sheets = chain(read, imported_lists(connection))
        found = [sheet_rates(sheet, machines(sheet.prices)) for sheet in sheets]
        refused = [reason for one in found for reason in one.refused]
        changes = compare([rate for one in found for rate in one.rates], read_rates(connection))
        import_rates(connection, changes.to_add, now)
        counts = {"new": len(changes.new), "changed": len(changes.changed), "unchanged": len(changes.unchanged)}
        counts |= {"refused": len(refused)}
        versions = [sheet.version for sheet in sheets]
        lists = [[*sheet.list_name, sheet.since.isoformat()] for sheet in sheets if sheet.is_whole]
        detail = {**counts, "versions": versions, "lists": lists}
        append_audit(connection, now, "command line", "rates.import", AWS_PRICE_LIST, detail)
    new = [_price_row(rate) for rate in changes.new]
    changed = [{**_price_row(rate), "was": former.price.amount} for former, rate in changes.changed]
    if run.as_json:
        rows = {"new_rates": new, "changes": changed, "reasons": refused}
        print_json({**counts, **rows, "versions": versions, "dry_run": options.dry_run})
        return len(refused)
    print_rows(new[:SHOWN], as_json=False, title=f"New prices of a GPU-hour{_of(new)}", empty="No new price.")
    print_rows(changed[:SHOWN], as_json=False, title=f"Changed{_of(changed)}", empty="No price changed.")
    if refused:
        say(f"Refused{_of(refused)}:\n" + bullet_list(refused[:SHOWN]))
    kept = " Nothing was kept (dry run)." if options.dry_run else ""
    say(", ".join(f"{count} {word}" for word, count in counts.items()) + f" of version {', '.join(versions)}.{kept}")
    return len(refused)


def _price_row(rate: Rate) -> dict[str, object]:
    return {
        "sku": rate.sku,
        "price": rate.price.amount,
        "currency": rate.price.currency,
        "valid_from": rate.valid_from,
        "valid_to": rate.valid_to,
    }


def _of(rows: Sequence[object]) -> str:
    return f" (the first {SHOWN} of {len(rows)}, all with --json)" if len(rows) > SHOWN else ""


FORMATS: Mapping[str, Importer] = {
    "card": import_card,
    "aws-price-list": import_aws_price_list,
    "fx": partial(import_fx, form="fx"),
    "ecb": partial(import_fx, form="ecb"),
    **{name: partial(import_vendor_list, format_=name, begin=import_transaction) for name in READERS},
}


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@click.option("--format", "format_", default="card", show_default=True, type=click.Choice(sorted(FORMATS)))
@click.option("--region", default="", metavar="CODE", help="region of a price list that holds several, for example us-east-1")
@click.option("--list-date", default="", metavar="DATE", help="day a vendors' list is of, where its file name does not say")
@click.option(
    "--since", default="", metavar="DATE", help="from when prices of vendors' models new to us hold (default: list date)"
)
@click.option("--confirm-jump", is_flag=True, help="exchange rates more than 25 % off the nearest known day's are right")
@click.option("--dry-run", is_flag=True, help="read everything and show what would change; nothing is kept")
@common
def import_command(
    run: Run,
    files: tuple[Path, ...],
    format_: str,
    region: str,
    list_date: str,
    since: str,
    confirm_jump: bool,
    dry_run: bool,
) -> int:
    """Take prices in. A price change is a new dated entry; the same file twice changes nothing.

    Exit code 2 when any line or price was refused, also under --dry-run: each is named, the good ones are kept. A card is taken
    whole or not at all.

    card: a YAML rate card of your own.

    aws-price-list: index.csv or index.json of EC2's price list (also gzip), one region; give versions in any order:
    one older than others imported before ends where the next of them begins.

    fx: exchange rates as CSV (day,base,quote,rate,source).

    ecb: the European Central Bank's eurofxref-hist.csv or .zip.

    genai-prices, litellm-prices: price lists of model vendors (data.json, model_prices_and_context_window.json; also gzip).
    vendor-card: your own prices of vendors' models, in YAML.
    """
    refused = FORMATS[format_](run, files, ImportOptions(region, dry_run, list_date, since, confirm_jump))
    return 2 if refused else 0
