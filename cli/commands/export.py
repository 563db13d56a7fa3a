"""``tokenfuse export``: the ledger for other tools."""

from __future__ import annotations

from dataclasses import asdict

import click

from cli.options import Run, common, parse_time
from cli.output import Progress, print_json, print_rows, say
from cli.wiring import database, utc_now
from core.errors import BadInput
from core.focus_rows import Issuer
from core.money import plain
from core.windows import Window
from models.database import snapshot
from models.focus_repo import GRAINS, Grain
from reports.focus_delivery import ROW_KINDS, ExportSettings, RowKinds
from reports.focus_export import Exported, export_focus
from reports.focus_files import ENDINGS, FileFormat
from reports.places import place_of


@click.group()
def export() -> None:
    """The ledger for other tools."""


@export.command()
@click.option("--out", required=True, metavar="DIR|s3://…", help="a folder, or s3://BUCKET/PREFIX")
@click.option(
    "--grain", type=click.Choice(GRAINS), default="hour", show_default=True, help="length of a row's charge period, UTC"
)
@click.option("--format", "file_format", type=click.Choice(sorted(ENDINGS)), default="csv", show_default=True)
@click.option(
    "--rows", "kinds", type=click.Choice(ROW_KINDS), default=None,
    help="origin rows (GPU hours) and what they were allocated to, or one of them (default: both; allocated with --tenant)",
)  # fmt: skip
@click.option(
    "--tenant", "--by-tenant", "tenant", default="", metavar="PATH", help="one tenant's rows: ORG[/TEAM[/PROJECT[/USER]]]"
)
@click.option("--as-of", metavar="TIME", help="the ledger as it stood then")
@click.option("--provider", default="Self-hosted inference", show_default=True, help="FOCUS provider, publisher, invoice issuer")
@click.option("--name", default="tokenfuse-focus", show_default=True, help="the export's name, in its files' names")
@click.option("--spreadsheet-safe", is_flag=True, help="CSV: put ' before names that a spreadsheet takes for formulas")
@click.option("--endpoint-url", metavar="URL", help="S3-compatible endpoint, for s3:// places that are not Amazon's")
@click.option("--region", metavar="NAME", help="region of the bucket (default: the usual AWS settings)")
@click.option("--from", "from_", required=True, metavar="TIME", help="start, included: 2026-06-01 (UTC) or 2026-06-01T00:00:00Z")
@click.option("--to", required=True, metavar="TIME", help="end, not included")
@common
def focus(
    run: Run,
    from_: str,
    to: str,
    out: str,
    grain: Grain,
    file_format: FileFormat,
    kinds: RowKinds | None,
    tenant: str,
    as_of: str | None,
    provider: str,
    name: str,
    spreadsheet_safe: bool,
    endpoint_url: str | None,
    region: str | None,
) -> int:
    """FOCUS 1.2: GPU hours of each deployment, allocated to tenant x model x token type; adds up to the ledger exactly.

    A delivery a billing period (UTC month): data files first, the manifest last. The same period again takes the former
    one's place. Nothing is put in place unless every sum equals the ledger's.
    """
    if not name or any(sign in name for sign in "/\\ "):
        raise BadInput("must be a word", field="--name", value=name, hint="letters, digits, - and _")
    path = tuple(part for part in tenant.split("/") if part)
    settings = ExportSettings(
        window=Window(parse_time(from_, "--from"), parse_time(to, "--to")),
        issuer=Issuer(provider, run.settings.organisation),
        now=utc_now(),
        grain=grain,
        file_format=file_format,
        rows=kinds or ("allocated" if path else "both"),
        name=name,
        as_of=parse_time(as_of, "--as-of") if as_of else None,
        tenant=path,
        safe=spreadsheet_safe,
    )
    place = place_of(out, endpoint_url, region)
    with database(run.settings) as engine, snapshot(engine) as connection:
        done = export_focus(connection, place, settings, Progress("rows", quiet=run.as_json))
    if run.as_json:
        print_json(asdict(done))
    else:
        _report(done)
    return 0


def _report(done: Exported) -> None:
    if not done.periods:
        say("No closed, priced quarter hour in this time range: nothing was written.")
    for period in done.periods:
        invoice = f"invoice {period.invoice_id}" if period.invoice_id else "not final, no invoice"
        say(f"{period.billing_period}: {period.rows:,} rows, {period.bytes:,} bytes, {invoice}\n  {period.file}")
        say(f"  {period.manifest}")
    for row in done.totals:
        say(f"{row['currency']}: {plain(row['effective'])}, equal to the ledger.")
    if done.unpriced:
        print_rows(done.unpriced, as_json=False, title="Closed without a price: in no row")
