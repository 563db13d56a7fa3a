"""``tokenfuse show unpriced`` and ``show bought``: tokens without a price; bought tokens by month against the vendor's bill."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click
from sqlalchemy import Connection

from cli.options import Run, common, window_options
from cli.output import print_rows, say
from cli.wiring import database
from core.windows import Window
from models.bought_check_repo import bought_months
from models.database import transaction
from models.unpriced_repo import unpriced_rows, unpriced_tokens


@click.command("unpriced")
@window_options(timedelta(days=35))
@common
def unpriced(run: Run, window: Window) -> None:
    """Tokens of closed quarter hours that no price covers: they are in no cost. Each with its reason and what would fill it."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = unpriced_rows(connection, window)
    shown = rows if run.as_json else [_words(row) for row in rows]
    print_rows(shown, as_json=run.as_json, empty="Every token of the closed quarter hours in this time range has a price.")
    if rows and not run.as_json:
        for hint in dict.fromkeys(row["hint"] for row in rows):
            say(f"To fill: {hint}")


@click.command("bought")
@window_options(timedelta(days=35))
@common
def bought(run: Run, window: Window) -> None:
    """Bought tokens by vendor and month: cost by price lists (in the ledger), what the gateway said, what the vendor billed."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = bought_months(connection, window)
    rows = [{**asdict(one), "month": f"{one.month:%Y-%m}", "currency": one.currency or None, "difference": one.difference}
            for one in found]  # fmt: skip
    print_rows(rows, as_json=run.as_json, empty="No bought token in the closed quarter hours of this time range.")


def say_unpriced(run: Run, connection: Connection, window: Window) -> None:
    """One line for people under figures that leave tokens without a price out; nothing where every token has one."""
    if run.as_json:
        return
    tokens = sum(unpriced_tokens(row) for row in unpriced_rows(connection, window))
    if tokens:
        say(f"{tokens:,} tokens unpriced in this time range; they are in no cost: tokenfuse show unpriced")


def _words(row: dict[str, Any]) -> dict[str, Any]:
    names = ("vendor", "model", "sold", "requests")
    tokens = {"tokens": unpriced_tokens(row), "input": row["input_uncached"], "cache_read": row["input_cache_read"],
              "cache_write": row["input_cache_write_5m"] + row["input_cache_write_1h"], "output": row["output"]}  # fmt: skip
    tenants = ", ".join(name or "(no tenant)" for name in row["tenants"])
    ends = {"first_at": row["first_at"], "last_at": row["last_at"], "reason": row["reason"]}
    return {**{name: row[name] for name in names}, **tokens, "tenants": tenants, **ends}
