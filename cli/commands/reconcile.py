"""``tokenfuse reconcile``: from the invoice's total to the tenants, every difference named."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from cli.commands.bills import parse_month
from cli.options import Run, common
from cli.output import print_json, print_rows, say
from cli.wiring import database
from control.bill_reconcile import reconcile as compare
from core.money import plain
from models.database import transaction

TITLES: Mapping[str, str] = {
    "invoice": "what was billed, by bucket",
    "months": "when it was used, or which invoice bills it",
    "basis": "from billed to effective cost",
    "machines": "machines' money, and what is no machine's",
    "holders": "who held the machines' GPUs",
    "ledger": "what the ledger closed of it",
    "lines": "closed quarter hours by what the time was",
    "tenants": "closed quarter hours by tenant, idle time borne by the work",
    "shared": "money of no machine: shared by rules, apart, or not shared",
}
"""What each step tells, in the order of the waterfall."""


@click.command()
@click.option("--period", metavar="YYYY-MM", help="one billing period (with --by-usage: one month of use); default: all")
@click.option("--currency", metavar="XXX", help="one currency only; currencies are never added")
@click.option("--by-usage", is_flag=True, help="what was used in a month, whichever invoice charges it (UTC months)")
@common
def reconcile(run: Run, period: str | None, currency: str | None, by_usage: bool) -> int:
    """From the invoice's total to the tenants: each step's parts add up to it exactly, each difference has a name and what to do.

    Engines against gateways is another question: `tokenfuse show coverage`. Exit code 1 when a difference without a name remains.
    """
    first = parse_month(period, "--period") if period else None
    with database(run.settings) as engine, transaction(engine) as connection:
        found = compare(
            connection, view="usage" if by_usage else "invoice", period=first, currency=currency.upper() if currency else None
        )
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
        sys.stderr.write(f"{one['billing_period']:%Y-%m} {one['currency']}: {amount} has no name, see above\n")
    return 1 if broken else 0


def _row(one: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: one[name] for name in ("billing_period", "currency", "view", "state")}
    return {"bucket": row["bucket"], **shared, **{name: value for name, value in row.items() if name != "bucket"}}


def _print(one: Mapping[str, Any]) -> None:
    """A step a table: its whole first, then the parts that add up to it."""
    what = f"{'Used in' if one['view'] == 'usage' else 'Invoiced for'} {one['billing_period']:%Y-%m}, {one['currency']}"
    say(f"{what}, {one['state']}: {_deliveries(one['deliveries'])}")
    for step, title in TITLES.items():
        parts = [row for row in one["rows"] if row["step"] == step and row["parent"]]
        if parts:
            print_rows([_whole(parts), *map(_shown, parts)], as_json=False, title=f"{what}: {title}")
    states = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in one["ledger_states"].items())
    say(f"Closed quarter hours: {states or 'none'}.")
    open_parts = [row for row in one["rows"] if row["is_open"]]
    if open_parts:
        say("Open:")
        for row in open_parts:
            say(f"  {row['bucket']} {plain(row['effective_cost'])} {one['currency']}: {row['hint']}")


def _whole(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parts' sum, under the name of what they take apart."""
    billed = [part["billed_cost"] for part in parts]
    return {
        "": parts[0]["parent"],
        "billed": "" if None in billed else sum(billed),
        "effective": sum(part["effective_cost"] for part in parts),
        "what to do": "",
    }


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    billed = row["billed_cost"]
    return {
        "": f"  {row['bucket']}", "billed": "" if billed is None else billed, "effective": row["effective_cost"],
        "what to do": row["hint"],
    }  # fmt: skip


def _deliveries(found: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{d['source']} {d['export']} {d['billing_period']:%Y-%m} version {d['version']}"
        + (f", invoice {', '.join(d['invoice_ids'])}" if d["is_final"] else ", not final")
        for d in found
    )
