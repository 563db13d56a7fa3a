"""``tokenfuse ingest bill``, ``tokenfuse show bills`` and ``tokenfuse show charges``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from cli.money_in import currency_options, print_in_currency
from cli.options import Run, common, parse_time, window_options
from cli.output import bullet_list, print_json, print_rows, say
from cli.wiring import database, utc_now
from control.money_in import asked_currency, charges_in
from core.billing import month_of, period_name
from core.currencies import require_currency
from core.errors import BadInput, Conflict, Refused, Unavailable
from core.money import plain
from core.period_text import parse_month
from core.windows import Window
from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept, FileStore, FoundDelivery, no_such_month
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.s3_store import S3Files, S3Settings
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportedBill, ImportSettings
from models.billing_repo import Restated, charges_by, deliveries
from models.database import transaction
from models.join_repo import NodeMoney

ACCEPTABLE = ("shorter", "older", "overlap", "future", "currency", "times")


@click.command()
@click.argument("source")
@click.option("--format", "format_", required=True, type=click.Choice(sorted(ADAPTERS)), help="how the bill is written")
@click.option("--dry-run", is_flag=True, help="read everything and show what would change; nothing is kept")
@click.option("--export", default="", metavar="NAME", help="the export's name (default: its manifest's, or the file's)")
@click.option("--source", "issuer", default="", metavar="NAME", help="the issuer, where neither format nor lines name it")
@click.option("--currency", default="", metavar="XXX", help="for files that name no currency")
@click.option("--net", is_flag=True, help="AWS: costs with private discounts in each price, from the net columns")
@click.option("--mapping", metavar="FILE", type=click.Path(path_type=Path), help="for formats read by a mapping file")
@click.option("--month", metavar="YYYY-MM", help="only billing periods that begin in this month")
@click.option("--accept", multiple=True, type=click.Choice(ACCEPTABLE), help="allow what the rules refuse; may be repeated")
@click.option("--instead-of", default="", metavar="EXPORT", help="the named export's delivery of the period gives way")
@click.option("--endpoint-url", metavar="URL", help="S3-compatible endpoint, for s3:// places that are not Amazon's")
@click.option("--region", metavar="NAME", help="region of the bucket (default: the usual AWS settings)")
@click.option("--memory-mb", type=click.IntRange(min=64), default=256, show_default=True, help="memory the reading may take")
@common
def bill(
    run: Run,
    source: str,
    format_: str,
    dry_run: bool,
    export: str,
    issuer: str,
    currency: str,
    net: bool,
    mapping: Path | None,
    month: str | None,
    accept: tuple[str, ...],
    instead_of: str,
    endpoint_url: str | None,
    region: str | None,
    memory_mb: int,
) -> int:
    """Read a bill: SOURCE is a file, an export's folder, or s3://BUCKET/PREFIX.

    Each billing period is replaced whole; the former delivery is kept as a version. The same again changes nothing, and an
    incomplete delivery changes nothing. Exit code 2 when a delivery was refused.
    """
    wanted = parse_month(month, "--month") if month else None
    unit = require_currency(currency.upper(), "--currency") if currency else ""
    options = BillOptions(issuer, export, unit, net, mapping, wanted)
    rules = Accept(**{word: word in accept for word in ACCEPTABLE}, instead_of=instead_of)
    store = bill_store(source, S3Settings(endpoint_url, region))
    writes_manifests = format_.startswith(("aws", "azure")) or (format_ == "focus" and source.startswith("s3://"))
    found = _of_month(find_deliveries(store, needs_manifest=writes_manifests), wanted, store.name(""))
    with database(run.settings) as engine:
        settings = ImportSettings(
            db=engine,
            data_dir=run.settings.data_dir,
            format=format_,
            adapter=ADAPTERS[format_],
            options=options,
            accept=rules,
            now=utc_now(),
            dry_run=dry_run,
            memory_mb=memory_mb,
            node_tags=run.settings.node_tags,
        )
        done, refused = _import_all(BillImport(settings), store, found, quiet=run.as_json)
    if run.as_json:
        print_json({"imported": [asdict(one) for one in done], "refused": refused})
    else:
        report(done, refused)
    return 2 if refused else 0


def _of_month(found: Sequence[FoundDelivery], month: date | None, origin: str) -> list[FoundDelivery]:
    """The deliveries of a month, and those whose lines will say of which they are. Raises BadInput where there is none."""
    chosen = [one for one in found if month is None or one.period is None or month_of(one.period) == month]
    if not chosen and month is not None:
        raise no_such_month((one.period for one in found if one.period), month, origin)
    return chosen


def bill_store(source: str, s3: S3Settings) -> FileStore:
    """The place a source names. Raises BadInput for one that does not exist."""
    return S3Files(source, s3) if source.startswith("s3://") else LocalFiles(Path(source))


def _import_all(
    job: BillImport, store: FileStore, found: list[FoundDelivery], *, quiet: bool
) -> tuple[list[ImportedBill], list[dict[str, Any]]]:
    """Every delivery on its own: one that is refused holds up no other."""
    done: list[ImportedBill] = []
    refused: list[dict[str, Any]] = []
    for one in found:
        if not quiet:
            say(f"Reading {one.export}{f' {one.period:%Y-%m}' if one.period else ''}: {len(one.keys):,} files")
        try:
            done += job.run(store, one)
        except (BadInput, Conflict, Refused, Unavailable) as error:
            refused.append({"export": one.export, "billing_period": one.period, "code": error.code, "reason": str(error)})
    return done, refused


def report(done: list[ImportedBill], refused: list[dict[str, Any]]) -> None:
    """What became of each delivery, for people."""
    for one in done:
        totals = "; ".join(f"{t['currency']} billed {t['billed']}, effective {t['effective']}" for t in one.totals)
        final = f"invoice {', '.join(one.invoice_ids)}" if one.is_final else "not final"
        place = f"{one.source} {one.export} {period_name(one.billing_period)} version {one.version}"
        say(f"{place}: {one.status}, {one.rows:,} rows, {final}.")
        say(f"  {totals}")
        for change in one.restated:
            say(f"  against version {one.replaces}: {_change_words(change)}")
        if one.nodes:
            say(f"  {_joined_words(one.nodes)}")
        if one.notes:
            say(bullet_list(one.notes))
    if refused:
        say("Refused:\n" + bullet_list(str(one["reason"]) for one in refused))


def _joined_words(nodes: list[NodeMoney]) -> str:
    own = {(row.cluster, row.node) for row in nodes if row.node}
    sums: dict[tuple[bool, str], Decimal] = {}
    for row in nodes:
        sums[bool(row.node), row.currency] = sums.get((bool(row.node), row.currency), Decimal(0)) + row.effective
    held, left = (
        ", ".join(f"{currency} {plain(amount)}" for (joined, currency), amount in sorted(sums.items()) if joined is wanted)
        for wanted in (True, False)
    )
    told = f"{len(own)} machines of the inventory cost {held} effective" if own else "no charge is of a machine of the inventory"
    return f"{told}; of no machine: {left} (`tokenfuse show unmatched`)" if left else told


def _change_words(change: Restated) -> str:
    parts = (
        ("added", change.added, change.billed_added),
        ("removed", change.removed, change.billed_removed),
        ("changed", change.changed, change.billed_changed),
    )
    named = ", ".join(f"{count:,} charges {what} {_signed(money)}" for what, count, money in parts)
    return f"{change.currency} billed {_signed(change.billed)}, effective {_signed(change.effective)} ({named})"


def _signed(amount: Decimal) -> str:
    return f"{'+' if amount >= 0 else ''}{plain(amount)}"


@click.command()
@click.option("--all", "every", is_flag=True, help="superseded and refused versions too")
@common
def bills(run: Run, every: bool) -> None:
    """Bill deliveries: what is in force by source, export and billing period, with its totals and whether it is final."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = deliveries(connection, every=every)
    if run.as_json:
        print_json([asdict(one) for one in found])
        return
    rows = []
    for one in found:
        shared = {
            "source": one.source,
            "export": one.export,
            "period": period_name(one.billing_period),
            "version": one.version,
            "status": one.status,
            "final": one.is_final,
            "rows": one.rows,
        }
        for total in one.totals or [{}]:
            money = {name: total.get(name, "") for name in ("currency", "billed", "effective")}
            rows.append({**shared, **money, "reason": one.reason})
    print_rows(rows, as_json=False, empty="No bill was imported: `tokenfuse ingest bill SOURCE --format F`.")


@click.command()
@click.option("--by", default="bucket,billing_period", show_default=True, metavar="COLS", help="keys, or tag:NAME, by commas")
@click.option("--where", "given", multiple=True, metavar="KEY=VALUE", help="only rows with this value; may be repeated")
@click.option("--invoice-from", metavar="YYYY-MM", help="billing periods from this one on (what was invoiced)")
@click.option("--invoice-to", metavar="YYYY-MM", help="and before this one")
@click.option("--as-of", metavar="TIME", help="as the deliveries stood at this instant")
@currency_options
@window_options(None)
@common
def charges(
    run: Run,
    by: str,
    given: tuple[str, ...],
    invoice_from: str | None,
    invoice_to: str | None,
    as_of: str | None,
    into: str | None,
    via: str,
    window: Window,
) -> None:
    """Charges of the bills in force, on both bases, by any keys; --from and --to are UTC days of use, not of the invoice.

    A charge that tells no day of use counts in the month its billing period begins in.
    """
    by_invoice = invoice_from is not None or invoice_to is not None
    context = click.get_current_context()
    by_usage = any(context.params.get(name) is not None for name in ("from_", "to"))
    months = (
        parse_month(invoice_from, "--invoice-from") if invoice_from else date.min,
        parse_month(invoice_to, "--invoice-to") if invoice_to else date.max,
    )
    keys = [_long(key.strip()) for key in by.split(",") if key.strip()]
    asked: dict[str, Any] = {
        "billing_months": months if by_invoice else None,
        "days": _whole_days(window) if by_usage else None,
        "filters": dict(_pair(item) for item in given),
        "as_of": parse_time(as_of, "--as-of") if as_of else None,
    }
    empty = "No charge: `tokenfuse show bills` lists what was imported."
    with database(run.settings) as engine, transaction(engine) as connection:
        if into is None:
            print_rows(charges_by(connection, keys, **asked), as_json=run.as_json, empty=empty)
            if by_usage and not run.as_json:
                _say_undated(charges_by(connection, ["day"], **asked))
            return
        to = asked_currency(into, run.settings.currency, "--in")
        print_in_currency(run, charges_in(connection, keys, to, via=via, **asked), empty)


def _say_undated(by_day: Sequence[Mapping[str, Any]]) -> None:
    """Charges that tell no day are in a view of days all the same: their money must not be missing from the month."""
    for row in by_day:
        if row["day"] is None:
            money = f"{row['currency']} {plain(row['billed_cost'])} billed"
            said = f"{row['rows']:,} charges tell no day of use ({money})"
            say(f"{said}: they count in the month their billing period begins in.")


def _pair(item: str) -> tuple[str, str]:
    key, sign, value = item.partition("=")
    if not sign:
        raise BadInput("is not KEY=VALUE", field="--where", value=item, hint="for example --where bucket=gpu")
    return _long(key.strip()), value


def _long(key: str) -> str:
    """``period`` is what people and the table of bills call a billing period."""
    return "billing_period" if key == "period" else key


def _whole_days(window: Window) -> Window:
    """UTC days the window touches: charges are kept by day."""
    day = timedelta(days=1)
    start = window.start.replace(hour=0, minute=0, second=0, microsecond=0)
    end = window.end.replace(hour=0, minute=0, second=0, microsecond=0)
    return Window(start, end if end == window.end else end + day)
