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
    """Why did it change: the causes of the difference between two periods' capacity cost, which add up to it exactly."""
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
    if not found["totals"]:
        say("No closed, priced quarter hour in either period.")
    for total in found["totals"]:
        percent = f", {plain(total['change_percent'])} %" if total["change_percent"] is not None else ""
        currency = total["currency"]
        before, after, change = (plain(total[name]) for name in ("before", "after", "change"))
        say(f"{before} {currency} in {first}, {after} in {second}: {change}{percent}")
        rows = [{"cause": row["effect"], currency: row["amount"], "what changed": row["text"]} for row in total["effects"]]
        print_rows(rows, as_json=False, title="Causes (they add up to the change)", empty="Nothing changed.")
    if found["prices"]:
        print_rows(found["prices"], as_json=False, title="Of the rate: by GPU type")
    if found["rows"]:
        print_rows([_mover(row) for row in found["rows"]], as_json=False, title=f"By {found['by']}")
    if found["unpriced"]:
        print_rows(found["unpriced"], as_json=False, title="Closed without a price: in no sum above")
    say(f"Charges that no usage explains: {found['bill_only']['reason']}.")


def _mover(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in row.items() if name not in ("effects", "reasons", "change_percent")}
    causes = ", ".join(f"{name} {plain(amount)}" for name, amount in row["effects"].items())
    return {**shown, "causes": causes} if row["effects"] else shown
