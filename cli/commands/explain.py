"""``tokenfuse explain``: why one period cost more or less than another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import click

from cli.options import Run, common
from cli.output import print_json, print_rows, say
from cli.wiring import database
from control.explain_facts import BY, By
from control.explain_facts import explain as compare
from core.money import plain
from core.period_text import parse_period
from models.database import transaction


@click.command()
@click.option("--from", "first", required=True, metavar="PERIOD", help="2026-05, 2026-W20, 2026-05-01 or START..END")
@click.option("--to", "second", required=True, metavar="PERIOD", help="the period compared with it")
@click.option("--by", type=click.Choice(BY), default="deployment", show_default=True, help="who moved")
@common
def explain(run: Run, first: str, second: str, by: str) -> int:
    """Why did it change: from the bills' total down to the causes of the ledger's change; each level adds up exactly."""
    windows = parse_period(first, "--from", run.settings.zone), parse_period(second, "--to", run.settings.zone)
    with database(run.settings) as engine, transaction(engine) as connection:
        found = compare(connection, *windows, cast(By, by))
    if run.as_json:
        print_json(found)
    else:
        _print(found, first, second)
    return 0


def _print(found: Mapping[str, Any], first: str, second: str) -> None:
    for name, text in (("first", first), ("second", second)):
        period = found[name]
        if period["closed_until"] and period["closed_until"] < period["window_end"]:
            say(f"{text}: the last closed quarter hour ends {period['closed_until']:%Y-%m-%dT%H:%MZ}; later ones are in no sum.")
    _print_bill(found["bill"], first, second)
    if not found["totals"]:
        say("No closed, priced quarter hour in either period.")
    for total in found["totals"]:
        percent = f", {plain(total['change_percent'])} %" if total["change_percent"] is not None else ""
        currency = total["currency"]
        before, after, change = (plain(total[name]) for name in ("before", "after", "change"))
        say(f"Ledger, capacity cost: {before} {currency} in {first}, {after} in {second}: {change}{percent}")
        rows = [{"cause": row["effect"], currency: row["amount"], "what changed": row["text"]} for row in total["effects"]]
        print_rows(rows, as_json=False, title="Causes (they add up to the change)", empty="Nothing changed.")
    if found["prices"]:
        print_rows(found["prices"], as_json=False, title="Of the rate: by GPU type")
    if found["rows"]:
        print_rows([_mover(row) for row in found["rows"]], as_json=False, title=f"By {found['by']}")
    if found["unpriced"]:
        print_rows(found["unpriced"], as_json=False, title="Closed without a price: in no sum above")


def _print_bill(bill: Mapping[str, Any], first: str, second: str) -> None:
    """The level above the ledger; charges that no machine of the inventory explains are its bill-only lines."""
    if bill["reason"]:
        say(f"Bills: {bill['reason']}.")
    for total in bill["totals"]:
        currency, how = total["currency"], "as invoiced" if bill["view"] == "invoice" else "by day of use (UTC)"
        before, after, change = (plain(total["billed"][name]) for name in ("before", "after", "change"))
        say(f"Bills, {how}: {before} {currency} billed in {first}, {after} in {second}: {change}")
        print_rows([_bucket(row) for row in total["buckets"]], as_json=False, title=f"Bills by bucket, {currency}")
        rows = [
            {"cause": row["effect"], currency: row["amount"], "what changed": row["text"]} for row in total["machine_effects"]
        ]
        print_rows(rows, as_json=False, title="Of machine time (effective cost)", empty="Machine time costs the same.")
        if total["machine_types"]:
            print_rows([_mover(row) for row in total["machine_types"]], as_json=False, title="By instance type")
        if total["commitments"]:
            print_rows(total["commitments"], as_json=False, title="Commitments that cover more or fewer hours")
        rows = [{name: value for name, value in _bucket(row).items() if name != "what it is"} for row in total["bill_only"]]
        print_rows(rows, as_json=False, title="Bill-only lines: no machine of the inventory", empty="No bill-only lines.")
        rows = [{"part": name.replace("_", " "), **amounts} for name, amounts in total["ledger"].items()]
        print_rows(rows, as_json=False, title="From the bill to the ledger (effective; held + by rates = cost)")


def _bucket(row: Mapping[str, Any]) -> dict[str, Any]:
    money = {f"{basis} {name}": row[basis][name] for basis in ("billed", "effective") for name in ("before", "after", "change")}
    return {"bucket": row["bucket"], **money, "what it is": row["text"]}


def _mover(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in row.items() if name not in ("effects", "reasons", "change_percent")}
    causes = ", ".join(f"{name} {plain(amount)}" for name, amount in row["effects"].items())
    return {**shown, "causes": causes} if row["effects"] else shown
