"""``tokenfuse show unpriced``: tokens without a price, and what would fill each hole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from cli.options import Run, common, window_options
from cli.output import print_rows, say
from cli.wiring import database
from core.windows import Window
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


def _words(row: dict[str, Any]) -> dict[str, Any]:
    names = ("vendor", "model", "sold", "requests")
    tokens = {"tokens": unpriced_tokens(row), "input": row["input_uncached"], "cache_read": row["input_cache_read"],
              "cache_write": row["input_cache_write_5m"] + row["input_cache_write_1h"], "output": row["output"]}  # fmt: skip
    tenants = ", ".join(name or "(no tenant)" for name in row["tenants"])
    ends = {"first_at": row["first_at"], "last_at": row["last_at"], "reason": row["reason"]}
    return {**{name: row[name] for name in names}, **tokens, "tenants": tenants, **ends}
