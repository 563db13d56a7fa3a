"""``tokenfuse compare``: engines of one's own beside vendors' list prices, and GPU types beside each other."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import click

from cli.commands.rates_vendor import split_model
from cli.options import Run, common, window_options
from cli.output import print_json, print_rows, say
from cli.wiring import database
from control.compare import BY, By, compare_with_vendors
from core.money import plain
from core.windows import Window
from models.database import transaction

_CENTS = Decimal("0.000001")


@click.command()
@click.option("--by", type=click.Choice(BY), default="model", show_default=True, help="a row per model, or per tenant and model")
@click.option("--against", multiple=True, metavar="VENDOR/MODEL", help="compare with this model of a vendor; may be repeated")
@window_options(timedelta(days=7))
@common
def compare(run: Run, by: str, against: tuple[str, ...], window: Window) -> None:
    """Own or bought: what your tokens cost, what the same tokens would have cost at vendors' list prices then in force, and from
    what use of the GPUs on your own are cheaper. Per million tokens of the same mix."""
    named = [split_model(text, "--against") for text in against]
    with database(run.settings) as engine, transaction(engine) as connection:
        order = run.settings.vendor_price_order
        found = compare_with_vendors(connection, window, by=cast(By, by), against=named, order=order)
    if run.as_json:
        print_json(found)
        return
    empty = "No closed, priced quarter hour of your own engines in this time range."
    print_rows([_words(row) for row in found["rows"]], as_json=False, title="Per million tokens of the same mix", empty=empty)
    said = {f"{row['against'] or row['model']}: {reason}" for row in found["rows"] for reason in row["reasons"].values()}
    for line in sorted(said):
        say(f"Unknown: {line}.")
    for hint in sorted({row["hint"] for row in found["rows"] if row["hint"]}):
        say(f"To fill: {hint}")
    shown = [{**row, **{name: _rounded(row[name]) for name in _HARDWARE}, "utilisation": _percent(row["utilisation"])}
             for row in found["hardware"]]  # fmt: skip
    print_rows(shown, as_json=False, title="GPU types, as measured here", empty="No engine was watched in this time range.")
    if found["field"]["rows"]:
        rows = [{**row, "per_mtok": _rounded(row["per_mtok"])} for row in found["field"]["rows"]]
        print_rows(rows, as_json=False, title=f"Formulas of the field: {found['field']['label']}")


_HARDWARE = ("tokens_per_gpu_s", "output_per_gpu_s", "per_mtok_at_use", "per_mtok_full")


def _words(row: dict[str, Any]) -> dict[str, Any]:
    tenant = {"tenant": row["tenant"]} if "tenant" in row else {}
    break_even = "never at this price" if row["break_even"] is not None and row["break_even"] > 1 else _percent(row["break_even"])
    return {
        **tenant, "model": row["model"], "against": row["against"] or "(not told)", "currency": row["currency"],
        "tokens": sum(row["tokens"].values()), "own, idle borne": _rounded(row["own_allocation"]),
        "own, while busy": _rounded(row["own_usage"]), "bought": _rounded(row["bought"]), "own / bought": row["times"],
        "use": _percent(row["utilisation"]), "break-even use": break_even, "verdict": row["verdict"],
        "state": row["meta"]["state"], "list": row["price_list"],
    }  # fmt: skip


def _rounded(value: Decimal | None) -> Decimal | None:
    return None if value is None else value.quantize(_CENTS)


def _percent(share: Decimal | None) -> str | None:
    return None if share is None else f"{plain(share * 100)} %"
