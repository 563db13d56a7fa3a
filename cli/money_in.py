"""``--in``: figures in one currency, with the rates used and what has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from cli.options import Run
from cli.output import bullet_list, print_json, print_rows, say
from core.money import plain

SHOWN = 5


def currency_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--in`` and ``--via``; the command gets ``into`` and ``via``."""
    command = click.option(
        "--via",
        default="",
        metavar="XXX",
        help="with --in: a third currency that may stand between two without a rate of their own",
    )(command)
    return click.option(
        "--in", "into", metavar="XXX", help="in this currency, each day at its own rate; `reporting`: the organisation's"
    )(command)


def print_in_currency(run: Run, answer: Mapping[str, Any], empty: str) -> None:
    """``control.money_in``'s answer: all of it as JSON; else the rows, what they are of, the rates and what has none."""
    if run.as_json:
        print_json(answer)
        return
    print_rows([{**row, "original": _original(row)} for row in answer["rows"]], as_json=False, empty=empty)
    rates = answer["rates"]
    if rates:
        more = [f"and of {len(rates) - SHOWN} more days"] if len(rates) > SHOWN else []
        say("At these rates:\n" + bullet_list([*rates[:SHOWN], *more]))
    missing = answer["missing"]
    if missing:
        first = missing[0]
        say(
            f"Not converted for want of a rate, first {first['base']}/{first['quote']} on {first['day']} "
            f"({len(missing)} days and pairs): tokenfuse rates import FILE --format fx|ecb"
        )


def _original(row: Mapping[str, Any]) -> str:
    """What a row is the sum of, where it is of another currency."""
    own = [one for one in row["original"] if one["currency"] != row["currency"]]
    return "; ".join(f"{_first_known(one)} {one['currency']}" for one in own)


def _first_known(one: Mapping[str, Any]) -> str:
    amount = next((value for name, value in one.items() if name != "currency" and value is not None), None)
    return "unknown" if amount is None else plain(amount)
