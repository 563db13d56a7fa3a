"""Price lists of vendors and a person's aliases: rows <-> core values. Nothing here commits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, Row, Table, insert, or_, select, text, update

from core.errors import Conflict, NotFound
from core.vendor_book import SOURCES, AliasUse, ModelAlias, PriceBook
from core.vendor_list import ModelSheet, PriceEntry, Rule, vendor_names
from core.vendor_price import TokenPrices
from models.rates_repo import lock_prices
from models.tables_vendor import VendorAliasRow, VendorPriceRow

_PRICES = cast(Table, VendorPriceRow.__table__)
_ALIASES = cast(Table, VendorAliasRow.__table__)
_BUCKETS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning")
_MARK_DIRTY = text("""
    INSERT INTO dirty_window (cluster, namespace, model_id, window_start, marked_at)
    SELECT cluster, namespace, model_id, window_start, :at FROM ledger_head
    WHERE cluster = 'vendor' AND window_start >= :since AND (CAST(:until AS timestamptz) IS NULL OR window_start < :until)
    ORDER BY 1, 2, 3, 4
    ON CONFLICT (cluster, namespace, model_id, window_start) DO UPDATE SET marked_at = excluded.marked_at
""")
_CLOSED_VENDORS = text("SELECT DISTINCT namespace FROM ledger_head WHERE cluster = 'vendor'")


@dataclass(frozen=True, slots=True)
class SheetChanges:
    """What an import did to a list: models never seen, with other prices, as before, and no longer named."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: int
    ended: tuple[str, ...]
    windows_marked: int


def add_sheets(
    connection: Connection, source: str, sheets: Sequence[ModelSheet], list_from: datetime, label: str, imported_at: datetime,
    *, whole: bool = True,
) -> SheetChanges:  # fmt: skip
    """Take a list in. A model whose prices did not change keeps its sheet; one with other prices gets a new sheet from
    ``list_from``; one a ``whole`` list no longer names ends there (a card of single models ends nothing, and its sheets have
    dates of their own). Models never seen hold from their own ``valid_from``. Closed bought quarter hours they touch become
    dirty. Raises Conflict for a list older than the one in force: the past is not overwritten."""
    lock_prices(connection, shared=False)
    former = {sheet.key: sheet for sheet in read_sheets(connection, source=source)}
    new = [sheet for sheet in sheets if sheet.key not in former]
    changed = [
        replace(sheet, valid_from=list_from) if whole else sheet
        for sheet in sheets
        if sheet.key in former and not sheet.same_prices(former[sheet.key])
    ]
    named = {sheet.key for sheet in sheets}
    ended = [
        replace(sheet, entries=(), valid_from=list_from, label=label)
        for key, sheet in former.items()
        if whole and key not in named and sheet.entries
    ]
    for sheet in (*changed, *ended):
        newest = former[sheet.key].valid_from
        if newest > sheet.valid_from:
            name = f"{sheet.vendor}/{sheet.model}"
            raise Conflict(
                f"this list is of {list_from:%Y-%m-%d}, and of {name} there are prices since {newest:%Y-%m-%d}",
                hint="a list is taken in by its date; name it with --list-date if the file does not",
            )
    fresh = [*new, *changed, *ended]
    _insert(connection, fresh, imported_at)
    marked = mark_bought(connection, min((s.valid_from for s in fresh), default=None), None, imported_at)
    names = [tuple(f"{s.vendor}/{s.model}" for s in part) for part in (new, changed, ended)]
    return SheetChanges(names[0], names[1], len(sheets) - len(new) - len(changed), names[2], marked)


def mark_bought(connection: Connection, since: datetime | None, until: datetime | None, at: datetime) -> int:
    """Have closed bought quarter hours from ``since`` on closed again; returns how many. None: nothing to do."""
    if since is None:
        return 0
    return connection.execute(_MARK_DIRTY, {"at": at, "since": since, "until": until}).rowcount


def read_sheets(
    connection: Connection, *, vendors: Collection[str] | None = None, source: str = "", newest_only: bool = True
) -> list[ModelSheet]:
    """Sheets of these vendors (of all), and of one source or all; ``newest_only``: the last of each model alone, else every one,
    oldest first."""
    query = select(_PRICES).order_by(_PRICES.c.valid_from, _PRICES.c.imported_at, _PRICES.c.id)
    if vendors is not None:
        query = query.where(_PRICES.c.vendor.in_(sorted(vendors)))
    if source:
        query = query.where(_PRICES.c.source == source)
    groups: dict[tuple[Any, ...], list[Row[Any]]] = {}
    for row in connection.execute(query):
        groups.setdefault((row.source, row.vendor, row.model, row.valid_from, row.imported_at), []).append(row)
    sheets = [_sheet(rows) for rows in groups.values()]
    return list({sheet.key: sheet for sheet in sheets}.values()) if newest_only else sheets


def read_book(
    connection: Connection, vendors: Collection[str] | None = None, order: Sequence[str] = SOURCES
) -> PriceBook:  # fmt: skip
    """Every sheet and alias that can price models of ``vendors`` (of all vendors without them), with their history."""
    aliases = read_aliases(connection)
    needed = None
    if vendors is not None:
        targets = {a.list_vendor for a in aliases if a.use == "price" and a.vendor in vendors}
        needed = {name for vendor in {*vendors, *targets} for name in vendor_names(vendor)}
    return PriceBook(tuple(read_sheets(connection, vendors=needed, newest_only=False)), tuple(aliases), tuple(order))


def bought_vendors(connection: Connection) -> set[str]:
    """Vendors of whom quarter hours are closed."""
    return set(connection.execute(_CLOSED_VENDORS).scalars())


def add_alias(connection: Connection, alias: ModelAlias, made_at: datetime) -> int:
    """Keep an alias; one of the same model in force then ends where it begins. Returns how many quarter hours are closed
    again."""
    lock_prices(connection, shared=False)
    same = (_ALIASES.c.use == alias.use, _ALIASES.c.vendor == alias.vendor, _ALIASES.c.model == alias.model)
    overlaps = or_(_ALIASES.c.valid_to.is_(None), _ALIASES.c.valid_to > alias.valid_from)
    if alias.use == "price":
        connection.execute(update(_ALIASES).where(*same, overlaps).values(valid_to=alias.valid_from))
    values = {name: getattr(alias, name) for name in ModelAlias.__dataclass_fields__}
    connection.execute(insert(_ALIASES).values(**values, made_at=made_at))
    return mark_bought(connection, alias.valid_from, alias.valid_to, made_at) if alias.use == "price" else 0


def end_alias(
    connection: Connection, use: AliasUse, vendor: str, model: str, at: datetime, now: datetime
) -> int:  # fmt: skip
    """End the alias of a model that holds at ``at``. Raises NotFound without one; returns how many quarter hours are closed
    again."""
    lock_prices(connection, shared=False)
    same = (_ALIASES.c.use == use, _ALIASES.c.vendor == vendor, _ALIASES.c.model == model, _ALIASES.c.valid_from < at)
    open_ = or_(_ALIASES.c.valid_to.is_(None), _ALIASES.c.valid_to > at)
    if not connection.execute(update(_ALIASES).where(*same, open_).values(valid_to=at)).rowcount:
        raise NotFound(f"no alias of {vendor}/{model}" if vendor else f"{model} is compared with nothing")
    return mark_bought(connection, at, None, now) if use == "price" else 0


def read_aliases(connection: Connection, use: AliasUse | None = None) -> list[ModelAlias]:
    """As they were made, oldest first; those that never held are left out."""
    query = select(_ALIASES).order_by(_ALIASES.c.id)
    query = query if use is None else query.where(_ALIASES.c.use == use)
    held = or_(_ALIASES.c.valid_to.is_(None), _ALIASES.c.valid_to > _ALIASES.c.valid_from)
    names = tuple(ModelAlias.__dataclass_fields__)
    return [ModelAlias(*(getattr(row, name) for name in names)) for row in connection.execute(query.where(held))]


def _insert(connection: Connection, sheets: Iterable[ModelSheet], imported_at: datetime) -> None:
    rows = [row for sheet in sheets for row in _rows(sheet, imported_at)]
    for first in range(0, len(rows), 5_000):
        connection.execute(insert(_PRICES), rows[first : first + 5_000])


_NOTHING = PriceEntry(TokenPrices("XXX"))


def _rows(sheet: ModelSheet, imported_at: datetime) -> Iterable[dict[str, Any]]:
    for position, entry in enumerate(sheet.entries or (_NOTHING,)):
        yield {
            "source": sheet.source, "vendor": sheet.vendor, "model": sheet.model, "valid_from": sheet.valid_from,
            "match": [[rule.kind, rule.text] for rule in sheet.rules], "position": position, "listed": bool(sheet.entries),
            "currency": entry.prices.currency, "tier": entry.tier, "above_tokens": entry.above_tokens,
            "starts_at": entry.starts_at, "day_from": entry.day_from, "day_to": entry.day_to, "zone": entry.zone_name,
            **{name: getattr(entry.prices, name) for name in _BUCKETS}, "free": entry.free, "label": sheet.label,
            "imported_at": imported_at,
        }  # fmt: skip


def _sheet(rows: Sequence[Row[Any]]) -> ModelSheet:
    first = rows[0]
    rules = tuple(Rule(kind, text_) for kind, text_ in first.match)
    entries = tuple(_entry(row) for row in sorted(rows, key=lambda row: row.position) if row.listed)
    return ModelSheet(first.source, first.vendor, first.model, rules, entries, first.valid_from, first.label)


def _entry(row: Row[Any]) -> PriceEntry:
    prices = TokenPrices(row.currency, **{name: getattr(row, name) for name in _BUCKETS})
    return PriceEntry(
        prices, row.tier, row.above_tokens, row.starts_at, row.day_from, row.day_to, row.zone, row.free
    )  # fmt: skip
