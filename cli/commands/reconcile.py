"""``tokenfuse reconcile``: from the invoice's total to the tenants, every difference named."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import click

from cli.options import Run, common
from cli.output import bullet_list, print_json, print_rows, say
from cli.wiring import database
from control.bill_reconcile import reconcile as compare
from core.billing import period_name
from core.currencies import require_currency
from core.money import plain, total
from core.period_text import parse_month
from models.database import transaction

TITLES: Mapping[str, str] = {
    "invoice": "by bucket",
    "months": "by month",
    "basis": "billed to effective",
    "machines": "machines or not",
    "holders": "who held the GPUs",
    "ledger": "what is closed of it",
    "lines": "what the time was",
    "tenants": "by tenant, idle borne by work",
    "shared": "no machine's: shared or apart",
}
"""What each step tells, in the order of the waterfall."""


@click.command()
@click.option(
    "--period", metavar="YYYY-MM", help="billing periods that begin in it; with --by-usage what was used in it; default: all"
)
@click.option("--currency", metavar="XXX", help="one currency only; currencies are never added")
@click.option("--by-usage", is_flag=True, help="what was used in a month, whichever invoice charges it (UTC months)")
@common
def reconcile(run: Run, period: str | None, currency: str | None, by_usage: bool) -> int:
    """From the invoice's total to the tenants: each step's parts add up to it exactly, each difference has a name and what to do.

    Engines against gateways is another question: `tokenfuse show coverage`. Exit code 1 when a difference without a name remains.
    """
    first = parse_month(period, "--period") if period else None
    unit = require_currency(currency.upper(), "--currency") if currency else None
    with database(run.settings) as engine, transaction(engine) as connection:
        found = compare(connection, view="usage" if by_usage else "invoice", period=first, currency=unit)
    if run.as_json:
        print_json([_row(one, row) for one in found for row in one["rows"]])
    elif not found:
        say("No bill of that period: `tokenfuse show bills` lists what was imported, `tokenfuse ingest bill` imports one.")
    else:
        for one in found:
            _print(one)
    broken = [one for one in found if one["difference"]]
    for one in broken:
        amount = plain(one["difference"])
        sys.stderr.write(f"{period_name(one['billing_period'])} {one['currency']}: {amount} has no name, see above\n")
    return 1 if broken else 0


def _row(one: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: one[name] for name in ("billing_period", "currency", "view", "state")}
    return {"bucket": row["bucket"], **shared, **{name: value for name, value in row.items() if name != "bucket"}}


def _print(one: Mapping[str, Any]) -> None:
    """One table: each step's whole, then the parts that add up to it."""
    what = f"{'Used in' if one['view'] == 'usage' else 'Invoiced for'} {period_name(one['billing_period'])}, {one['currency']}"
    say(f"{what}, {one['state']}: {_deliveries(one['deliveries'])}")
    lines: list[dict[str, Any]] = []
    for step, title in TITLES.items():
        parts = [row for row in one["rows"] if row["step"] == step and row["parent"]]
        if parts:
            lines += [_line(title, parts[0]["parent"], *_sums(parts)), *(_part(row) for row in parts)]
    print_rows(lines, as_json=False, title=f"{what}: every step adds up to the line it begins with")
    states = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in one["ledger_states"].items())
    say(f"Closed quarter hours: {states or 'none'}.")
    open_parts = [row for row in one["rows"] if row["is_open"]]
    if open_parts:
        say("Open, and what to do:")
        say(bullet_list(f"{r['bucket']} {plain(r['effective_cost'])} {one['currency']}: {r['hint']}" for r in open_parts))


def _sums(parts: Sequence[Mapping[str, Any]]) -> tuple[Decimal | str, Decimal]:
    billed = [part["billed_cost"] for part in parts]
    return "" if None in billed else total(billed), total(part["effective_cost"] for part in parts)


def _line(step: str, part: str, billed: Decimal | str, effective: Decimal | str, hint: str = "") -> dict[str, Any]:
    return {"step": step, "part": part, "billed": billed, "effective": effective, "note": hint}


def _part(row: Mapping[str, Any]) -> dict[str, Any]:
    billed = "" if row["billed_cost"] is None else row["billed_cost"]
    return _line("", f"  {row['bucket']}", billed, row["effective_cost"], row["hint"])


def _deliveries(found: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{d['source']} {d['export']} {period_name(d['billing_period'])} version {d['version']}"
        + (f", invoice {', '.join(d['invoice_ids'])}" if d["is_final"] else ", not final")
        for d in found
    )
