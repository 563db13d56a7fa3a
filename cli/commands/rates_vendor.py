"""``tokenfuse rates``: price lists of model vendors, what they say of a model, and a person's aliases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import click
from sqlalchemy import Connection

from cli.options import Run, common, parse_time
from cli.output import bullet_list, print_json, print_rows, say
from cli.wiring import database, utc_now
from core.errors import BadInput
from core.vendor_book import AliasUse, ModelAlias, PriceBook, Quote, quote, quotes
from core.vendor_list import ModelSheet, PriceEntry, prompt_class, sold_as
from ingest.prices.genai_prices import read_genai_prices
from ingest.prices.litellm_prices import read_litellm_prices
from ingest.prices.vendor_card import SOURCE as CARD
from ingest.prices.vendor_card import read_vendor_card
from ingest.prices.vendor_sheets import MAX_BYTES, VendorList, VendorReader, list_date, unpacked
from ingest.small_file import read_small
from models.audit_repo import append_audit
from models.database import transaction
from models.vendor_repo import SheetChanges, add_alias, add_sheets, end_alias, read_aliases, read_book

READERS: Mapping[str, VendorReader] = {
    "genai-prices": read_genai_prices,
    "litellm-prices": read_litellm_prices,
    CARD: read_vendor_card,
}
SHOWN = 20
WHO = "command line"


class Options(Protocol):
    """What an import is told beside its file."""

    @property
    def dry_run(self) -> bool: ...
    @property
    def list_date(self) -> str: ...
    @property
    def since(self) -> str: ...


Begin = Callable[[Run, Any], AbstractContextManager[Connection]]


def import_vendor_list(run: Run, files: tuple[Path, ...], options: Options, *, format_: str, begin: Begin) -> int:
    """One list of model vendors. Prices that changed hold from the list's date; models never seen from --since on. Says how
    many models were refused."""
    if len(files) > 1:
        raise BadInput("takes one file at a time", field="--format", value=format_)
    file, now = files[0], utc_now()
    dated = _list_date(file, options, now)
    since = parse_time(options.since, "--since") if options.since else dated
    label = f"{format_} {dated:%Y-%m-%d}"
    found = READERS[format_](_bytes(file), file.name, since, label)
    with begin(run, options) as connection:
        whole = format_ != CARD
        changes = add_sheets(connection, found.source, found.sheets, dated, label, now, whole=whole)
        counts = _counts(found, changes)
        append_audit(connection, now, WHO, "rates.import", label, counts)
    _print_import(run, label, found, changes, counts, dry_run=options.dry_run)
    return len(found.refused)


def _list_date(file: Path, options: Options, now: datetime) -> datetime:
    if options.list_date:
        return parse_time(options.list_date, "--list-date")
    day = list_date(file.name) or now.date()
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _bytes(file: Path) -> bytes:
    return unpacked(read_small(file, MAX_BYTES, hint="name a price list"), file.name)


def _counts(found: VendorList, changes: SheetChanges) -> dict[str, int]:
    return {
        "new": len(changes.new), "changed": len(changes.changed), "unchanged": changes.unchanged, "ended": len(changes.ended),
        "refused": len(found.refused), "left_out": found.left_out.total(), "unknown_zeros": found.unknown_zeros,
        "rules_not_used": found.rules_not_used, "windows_marked": changes.windows_marked,
    }  # fmt: skip


def _print_import(
    run: Run, label: str, found: VendorList, changes: SheetChanges, counts: Mapping[str, int], *, dry_run: bool
) -> None:  # fmt: skip
    refused = [f"{one.model}: {one.reason}" for one in found.refused]
    if run.as_json:
        rows = {"new_models": changes.new, "changed_models": changes.changed, "ended_models": changes.ended}
        print_json({"label": label, **counts, **rows, "reasons": refused, "left_out_by": found.left_out, "dry_run": dry_run})
        return
    for title, names in (("Changed", changes.changed), ("No longer in the list", changes.ended), ("Refused", refused)):
        if names:
            more = f" (the first {SHOWN} of {len(names)}, all with --json)" if len(names) > SHOWN else ""
            say(f"{title}{more}:\n{bullet_list(names[:SHOWN])}")
    left = ", ".join(f"{number} with {reason}" for reason, number in sorted(found.left_out.items()))
    told = ("new", "changed", "unchanged", "ended", "refused")
    say(f"{label}: models " + ", ".join(f"{counts[name]} {name}" for name in told) + (f". Left out: {left}." if left else "."))
    if found.unknown_zeros:
        say(f"{found.unknown_zeros} prices of 0 are read as unknown: the list does not mark them as free.")
    if found.rules_not_used:
        say(f"{found.rules_not_used} rules of the list name models by a part of their name; they are hints and price nothing.")
    kept = "Nothing was kept (dry run)." if dry_run else f"{changes.windows_marked} closed quarter hours are looked at again."
    say(kept)


@click.group()
def vendor() -> None:
    """Prices of model vendors: what the lists say, and which model of a list one of yours is."""


@vendor.command("list")
@click.option("--vendor", "vendor_", metavar="NAME", help="only this vendor, by any of its names")
@click.option("--model", metavar="TEXT", help="only models whose name holds this text")
@click.option("--at", metavar="TIME", help="prices in force then (default: now)")
@common
def list_command(run: Run, vendor_: str | None, model: str | None, at: str | None) -> None:
    """Every price in force, of every list. Prices are per million tokens."""
    when = parse_time(at, "--at") if at else utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        book = read_book(connection, {vendor_} if vendor_ else None)
    names = [vendor_] if vendor_ else sorted({sheet.vendor for sheet in book.sheets})
    sheets = {sheet.key: sheet for name in names for sheet in book.in_force(name, when)}
    wanted = (model or "").casefold()
    rows = [_entry_row(s, e) for _, s in sorted(sheets.items()) if wanted in s.model.casefold() for e in s.entries]
    print_rows(rows, as_json=run.as_json, empty="No price of a vendor: tokenfuse rates import FILE --format genai-prices")


def _entry_row(sheet: ModelSheet, entry: PriceEntry) -> dict[str, Any]:
    return {
        "vendor": sheet.vendor, "model": sheet.model, "sold": entry.tier, "condition": condition(entry),
        **prices_row(entry), "currency": entry.prices.currency, "list": sheet.label, "valid_from": sheet.valid_from,
    }  # fmt: skip


def prices_row(entry: PriceEntry | None) -> dict[str, Any]:
    """Prices per million tokens by bucket; unknown is None."""
    names = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "reasoning")
    return {name: None if entry is None else getattr(entry.prices, name) for name in names}


def condition(entry: PriceEntry) -> str:
    """When the entry holds, in words; '' for always."""
    parts = [f"prompt over {entry.above_tokens} tokens"] if entry.above_tokens else []
    parts += [f"from {entry.starts_at:%Y-%m-%d}"] if entry.starts_at else []
    if entry.day_from is not None and entry.day_to is not None:
        parts.append(f"{entry.day_from:%H:%M}-{entry.day_to:%H:%M} {entry.zone_name}")
    return ", ".join([*parts, *(["free"] if entry.free else [])])


@vendor.command("find")
@click.argument("model", metavar="VENDOR/MODEL")
@click.option("--at", required=True, metavar="TIME", help="when the request ended: prices have dates and times of day")
@click.option("--sold", default="standard", show_default=True, help="standard, batch, flex, priority …")
@click.option("--prompt-tokens", default=1, show_default=True, type=click.IntRange(1), help="length of the prompt")
@common
def find_command(run: Run, model: str, at: str, sold: str, prompt_tokens: int) -> int:
    """What a request costs: the list that counts first, then what the others say. Exit 1 where no price is known."""
    vendor_, name = split_model(model, "VENDOR/MODEL")
    when = parse_time(at, "--at")
    with database(run.settings) as engine, transaction(engine) as connection:
        book = read_book(connection, {vendor_}, run.settings.vendor_price_order)
    place = (book, vendor_, name, when, sold_as(sold), prompt_class(prompt_tokens))
    counts, others = quote(*place), quotes(*place)
    found = [counts, *(one for one in others if one.label != counts.label)]
    rows = [_quote_row(one, n == 0) for n, one in enumerate(found) if one.label]
    if run.as_json:
        print_json({"model": model, "at": when, "priced": counts.prices is not None, "reason": counts.reason, "hint": counts.hint,
                    "quotes": rows})  # fmt: skip
    else:
        print_rows(rows, as_json=False, empty=f"Unknown: {counts.reason}.")
        if counts.prices is None:
            say((f"Unknown: {counts.reason}. " if rows else "") + f"To fill it: {counts.hint}")
    return int(counts.prices is None)


def _quote_row(one: Quote, counts: bool) -> dict[str, Any]:
    when = condition(one.entry) if one.entry is not None else one.reason
    currency = one.prices.currency if one.prices is not None else None
    return {"list": one.label, "counts": counts, **prices_row(one.entry), "currency": currency, "condition": when}


@vendor.group()
def alias() -> None:
    """Which model of the lists one is. A person's word, dated: nothing is guessed."""


@alias.command("add")
@click.argument("model", metavar="VENDOR/MODEL")
@click.argument("target", metavar="LIST_VENDOR/LIST_MODEL")
@click.option("--from", "from_", required=True, metavar="TIME", help="from when (a quarter hour)")
@click.option("--to", metavar="TIME", help="until when (default: open)")
@click.option("--source", default="", metavar="LIST", help="take this list's price (genai-prices, litellm-prices, vendor-card)")
@click.option("--reason", required=True, help="why: it is kept in the audit trail")
@common
def alias_add(run: Run, model: str, target: str, from_: str, to: str | None, source: str, reason: str) -> None:
    """VENDOR/MODEL of your records is sold as LIST_VENDOR/LIST_MODEL. Closed quarter hours since then are priced again."""
    keep_alias(run, "price", split_model(model, "VENDOR/MODEL"), target, from_, to, source, reason)


@alias.command("compare")
@click.argument("model", metavar="OWN_MODEL")
@click.argument("target", metavar="LIST_VENDOR/LIST_MODEL")
@click.option("--from", "from_", default="2000-01-01", show_default=True, metavar="TIME")
@click.option("--to", metavar="TIME", help="until when (default: open)")
@click.option("--source", default="", metavar="LIST", help="take this list's price")
@click.option("--reason", required=True, help="why they compare")
@common
def alias_compare(run: Run, model: str, target: str, from_: str, to: str | None, source: str, reason: str) -> None:
    """`tokenfuse compare` puts your OWN_MODEL beside this model of a vendor. Several may be named, one after the other."""
    keep_alias(run, "compare", ("", model), target, from_, to, source, reason)


def keep_alias(
    run: Run, use: AliasUse, own: tuple[str, str], target: str, from_: str, to: str | None, source: str, reason: str
) -> None:  # fmt: skip
    """Check that a list names the target, keep the alias, and say what follows. Raises BadInput where none does."""
    vendor_, name = split_model(target, "LIST_VENDOR/LIST_MODEL")
    start, now = parse_time(from_, "--from"), utc_now()
    end = parse_time(to, "--to") if to else None
    if source and source not in READERS:
        raise BadInput("no such list", field="--source", value=source, hint=f"use {', '.join(READERS)}")
    for option, at in (("--from", start), ("--to", end)):
        if at is not None and (at.minute % 15 or at.second):
            raise BadInput("is not on a quarter hour, by which usage is priced", field=option, value=at.isoformat())
    if end is not None and end <= start:
        raise BadInput("must be after --from", field="--to", value=to)
    made = ModelAlias(use, *own, vendor_, name, source, start, end, WHO, reason)
    with database(run.settings) as engine, transaction(engine) as connection:
        book = read_book(connection, {vendor_}, (source,) if source else run.settings.vendor_price_order)
        check = quote(PriceBook(book.sheets, (), book.order), vendor_, name, max(start, now))
        if not check.label:
            raise BadInput(f"names nothing: {check.reason}", field="target", value=target, hint=check.hint)
        marked = add_alias(connection, made, now)
        detail = {"from": start.isoformat(), "to": end.isoformat() if end else None, "source": source, "reason": reason}
        append_audit(connection, now, WHO, f"vendor.alias.{use}", f"{'/'.join(own).strip('/')} = {target}", detail)
    if run.as_json:
        print_json({"model": "/".join(own).strip("/"), "target": target, "use": use, "windows_marked": marked})
    else:
        say(f"Kept. {marked} closed quarter hours are priced again." if use == "price" else "Kept.")


@alias.command("list")
@common
def alias_list(run: Run) -> None:
    """Every alias, oldest first."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = read_aliases(connection)
    rows = [
        {"use": a.use, "model": f"{a.vendor}/{a.model}".strip("/"), "is": f"{a.list_vendor}/{a.list_model}",
         "list": a.source or "any", "valid_from": a.valid_from, "valid_to": a.valid_to, "made_by": a.made_by, "reason": a.reason}
        for a in found
    ]  # fmt: skip
    print_rows(
        rows, as_json=run.as_json, empty="No alias: tokenfuse rates vendor alias add VENDOR/MODEL LIST_VENDOR/LIST_MODEL …"
    )


@alias.command("end")
@click.argument("model", metavar="VENDOR/MODEL|OWN_MODEL")
@click.option("--compare", is_flag=True, help="a model of your own that is compared")
@click.option("--at", metavar="TIME", help="when it ends (default: now, at a quarter hour)")
@common
def alias_end(run: Run, model: str, compare: bool, at: str | None) -> None:
    """End an alias; closed quarter hours since then are priced again."""
    now = utc_now()
    when = parse_time(at, "--at") if at else now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)
    own = ("", model) if compare else split_model(model, "VENDOR/MODEL")
    use: AliasUse = "compare" if compare else "price"
    with database(run.settings) as engine, transaction(engine) as connection:
        marked = end_alias(connection, use, *own, when, now)
        append_audit(connection, now, WHO, "vendor.alias.end", model, {"use": use, "at": when.isoformat()})
    if run.as_json:
        print_json({"model": model, "use": use, "ended_at": when, "windows_marked": marked})
    else:
        say(f"Ended. {marked} closed quarter hours are priced again.")


def split_model(text: str, field: str) -> tuple[str, str]:
    """(vendor, model) of VENDOR/MODEL; the model may hold more slashes. Raises BadInput naming ``field``."""
    vendor_, slash, model = text.partition("/")
    if not (vendor_ and slash and model):
        raise BadInput("is not VENDOR/MODEL", field=field, value=text, hint="for example deepseek/deepseek-chat")
    return vendor_, model
