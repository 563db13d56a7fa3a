"""``tokenfuse rates discount``: a typed discount on list prices, until a bill says what is paid."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal, DecimalException
from typing import cast

import click
from sqlalchemy import Connection

from cli.options import Run, common, parse_time
from cli.output import print_json, print_rows, say
from cli.wiring import database, utc_now
from core.discount import DISCOUNTED, Discount, discounted
from core.errors import BadInput
from core.rates import Rate, RateKind
from models.audit_repo import append_audit
from models.database import transaction
from models.rates_repo import add_discount, end_discount, read_discounts, read_rates

ACTOR = "command line"


@click.group()
def discount() -> None:
    """A typed discount: list prices less so many percent, labelled; a bill or a signed price goes before it."""


@discount.command()
@click.option("--provider", required=True, help="whose list prices: a word of their source, for example aws")
@click.option("--kind", default="gpu_hour", show_default=True, type=click.Choice(DISCOUNTED))
@click.option("--percent", required=True, metavar="N", help="28 means 28 % off")
@click.option("--from", "from_", required=True, metavar="TIME", help="in force since")
@click.option("--to", metavar="TIME", help="in force until (default: ended by `rates discount end` or by a bill)")
@click.option("--reason", required=True, help="what it rests on, for example the contract")
@click.option("--by", "by", default=ACTOR, show_default=True, help="who says so")
@click.option("--dry-run", is_flag=True, help="show the prices it would make; nothing is kept")
@common
def add(
    run: Run, provider: str, kind: str, percent: str, from_: str, to: str | None, reason: str, by: str, dry_run: bool
) -> None:
    """Take a discount into force; closed windows since then are closed again as a new version."""
    now = utc_now()
    since, until = parse_time(from_, "--from"), parse_time(to, "--to") if to else None
    typed = Discount(provider, cast(RateKind, kind), _percent(percent), since, until, reason, by)
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = _preview(connection, typed)
        number = None
        if not dry_run:
            number = add_discount(connection, typed, now)
            detail = {"provider": provider, "kind": kind, "percent": percent, "from": from_, "to": to, "reason": reason, "by": by}
            append_audit(connection, now, ACTOR, "rates.discount.add", f"discount:{number}", detail)
    if run.as_json:
        print_json({"id": number, "rates": rows, "dry_run": dry_run})
        return
    print_rows(rows, as_json=False, title=typed.label)
    say(
        "Nothing was kept (dry run)."
        if dry_run
        else f"Discount {number} is in force. `tokenfuse rates discount end {number}` ends it."
    )


@discount.command("list")
@common
def list_command(run: Run) -> None:
    """Discounts in force, past and to come."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = [{"id": one.id, **asdict(one.discount), "typed_at": one.typed_at} for one in read_discounts(connection)]
    print_rows(rows, as_json=run.as_json, empty="No discount was typed: list prices count in full until a bill comes.")


@discount.command()
@click.argument("number", type=int)
@click.option("--at", metavar="TIME", help="the first instant without it (default: now); its start or before: it never was")
@common
def end(run: Run, number: int, at: str | None) -> None:
    """End a discount; closed windows since then are closed again at list prices."""
    now = utc_now()
    until = parse_time(at, "--at") if at else now
    with database(run.settings) as engine, transaction(engine) as connection:
        ended = end_discount(connection, number, until, now)
        append_audit(connection, now, ACTOR, "rates.discount.end", f"discount:{number}", {"at": until.isoformat()})
    if run.as_json:
        print_json({"id": number, "ended_at": until})
    else:
        say(f"{ended.label}: ended at {until.isoformat()}.")


def _percent(text: str) -> Decimal:
    try:
        return Decimal(text.removesuffix("%").strip())
    except DecimalException as error:
        raise BadInput("is no number", field="--percent", value=text, hint="28 means 28 % off") from error


def _preview(connection: Connection, typed: Discount) -> list[dict[str, object]]:
    """The prices it makes. Raises BadInput when it fits none: most likely a mistyped provider."""
    rates = read_rates(connection)
    made = discounted(rates, [typed])
    if not made:
        sources = sorted({_words(rate) for rate in rates if rate.charge_basis == "list" and rate.kind == typed.kind})
        hint = f"list prices of this kind are from: {'; '.join(sources[:6]) or 'none'}"
        raise BadInput(
            "no list price of this provider and kind is in force then", field="--provider", value=typed.provider, hint=hint
        )
    return [
        {"sku": rate.sku, "price": rate.price.amount, "currency": rate.price.currency, "valid_from": rate.valid_from,
         "valid_to": rate.valid_to}
        for rate in made
    ]  # fmt: skip


def _words(rate: Rate) -> str:
    """The beginning of a source: list, issuer, region."""
    return " ".join(rate.source.split()[:9])
