"""``tokenfuse costbook``: what own racks cost, issued month by month as a bill of one's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cli.commands.bills import report
from cli.options import Run, common
from cli.output import bullet_list, print_json, print_rows, say
from cli.wiring import database, utc_now
from control.cost_book import IssueAsk, Issued, IssuePlace, issue
from core.errors import BadInput
from core.period_text import parse_month
from ingest.billing.cost_book import read_cost_book

NODE_DECIMALS = 6
"""A node's share as people read it; its exact one, with the quanta that make all shares add up, stands under ``--json``."""


@click.group()
def costbook() -> None:
    """Own racks: depreciation, rent, support, staff, network and power, issued as a bill."""


@costbook.command("issue")
@click.argument("book", type=click.Path(path_type=Path))
@click.option(
    "--month", required=True, metavar="YYYY-MM", help="the calendar month (UTC); of the running one, the days that are over"
)
@click.option("--final", is_flag=True, help="the month is closed under --invoice-id")
@click.option("--invoice-id", default="", metavar="ID", help="with --final: the number the month is booked under")
@click.option(
    "--accept", multiple=True, type=click.Choice(["unmeasured"]), help="allow --final though power is not known throughout"
)
@click.option("--dry-run", is_flag=True, help="compute everything and show what would change; nothing is kept")
@common
def issue_command(run: Run, book: Path, month: str, final: bool, invoice_id: str, accept: tuple[str, ...], dry_run: bool) -> None:
    """Issue a month of BOOK (YAML, see docs/cost-book.md) and import it as source `costbook`.

    The same again changes nothing; a changed book is a new version with its difference. A kWh without a tariff stops the issue.
    """
    if final != bool(invoice_id.strip()):
        raise BadInput("go together", field="--final, --invoice-id", hint="a month is final under its invoice's number")
    file = read_cost_book(book)
    ask = IssueAsk(parse_month(month, "--month"), utc_now(), invoice_id.strip(), dry_run, "unmeasured" in accept)
    with database(run.settings) as engine:
        done = issue(IssuePlace(engine, run.settings.data_dir, run.settings.node_tags), file, ask)
    if run.as_json:
        print_json(_as_json(done, file.book.currency))
        return
    kinds = [{"cost": kind, "amount": amount, "currency": file.book.currency} for kind, amount in sorted(done.by_kind.items())]
    nodes = [{"node": node or "(no node)", "amount": round(amount, NODE_DECIMALS)} for node, amount in done.by_node.items()]
    print_rows(kinds, as_json=False, title=f"{file.book.name} {done.month:%Y-%m}")
    print_rows(nodes, as_json=False, title="By node, taxes apart")
    if done.until.month == done.month.month:
        say(f"Days before {done.until}: the month is not over.")
    if done.notes or done.unmeasured:
        say("Not in these amounts:\n" + bullet_list((*done.notes, *done.unmeasured)))
    report(list(done.bills), [])


def _as_json(done: Issued, currency: str) -> dict[str, Any]:
    return {
        "month": f"{done.month:%Y-%m}",
        "until": done.until,
        "currency": currency,
        "by_kind": done.by_kind,
        "by_node": done.by_node,
        "notes": [*done.notes],
        "unmeasured": [*done.unmeasured],
        "imported": [asdict(bill) for bill in done.bills],
    }
