"""A cost book in YAML (``cost-book/1``) -> assets, running costs, power of own racks. Faults are named by file, line, field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, cast

from yaml.nodes import MappingNode, Node, SequenceNode

from core.book_power import PowerEntry, Reading
from core.cost_book import Asset, CostBook, RunningCost
from core.depreciation import CENTS, StraightLine
from core.errors import BadInput
from core.money import ZERO
from ingest.prices.rate_card import MAX_BYTES, compose, decimal_of, fields_of, place_of, text_of, time_of
from ingest.small_file import read_small

VERSION = "cost-book/1"
BOOK_FIELDS = frozenset({"version", "name", "issuer", "currency", "decimals", "assets", "costs", "power"})
ASSET_FIELDS = frozenset({
    "id", "nodes", "cluster", "gpu_type", "gpus", "price", "residual", "in_service_from", "out_of_service", "useful_life_months",
    "depreciation", "vat",
})  # fmt: skip
COST_FIELDS = frozenset({"id", "kind", "monthly", "from", "to", "spread", "over", "vat_percent"})
POWER_FIELDS = frozenset({"id", "nodes", "meter", "site", "readings", "kwh"})
READING_FIELDS = frozenset({"at", "kwh"})
FIELD_NAMES = {"life_months": "useful_life_months"}
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class BookFile:
    book: CostBook
    power: tuple[PowerEntry, ...]


def read_cost_book(path: Path) -> BookFile:
    """Read a book from a file. Raises BadInput "FILE:LINE: field: …"."""
    return parse_cost_book(read_small(path, MAX_BYTES, what="cost book", hint="name a YAML cost book"), path.name)


def parse_cost_book(body: bytes, name: str = "cost book") -> BookFile:
    """Parse YAML bytes; the form is in docs/cost-book.md. Numbers are read as text, never through a float."""
    top = _Entry(compose(body, name), name, "cost book", BOOK_FIELDS)
    if top.text("version", "") != VERSION:
        raise BadInput(f"must be {VERSION}", where=top.place("version"), field="version")
    decimals = top.whole("decimals", CENTS)
    assets = tuple(_asset(one, decimals) for one in top.entries("assets", "asset", ASSET_FIELDS))
    costs = tuple(_cost(one) for one in top.entries("costs", "cost", COST_FIELDS))
    power = tuple(_power(one) for one in top.entries("power", "power entry", POWER_FIELDS))
    book = top.make(lambda: CostBook(top.text("name"), top.text("issuer"), top.text("currency"), assets, costs, decimals))
    if len(book.currency) != 3 or not book.currency.isupper():
        raise BadInput("must be a three-letter ISO 4217 code", where=top.place("currency"), field="currency", value=book.currency)
    if not book.name.replace("-", "").replace("_", "").isalnum():
        raise BadInput("may hold letters, digits, - and _", where=top.place("name"), field="name", value=book.name)
    nodes = {node for asset in assets for node in asset.nodes}
    for entry in power:
        unknown = next((node for node in entry.nodes if node not in nodes), None)
        if unknown is not None:
            raise BadInput("is no node of an asset", where=top.place("power"), field="nodes", value=unknown)
    return BookFile(book, power)


def _asset(entry: _Entry, decimals: int) -> Asset:
    since = entry.day("in_service_from")
    method = cast(Any, entry.text("depreciation", "month"))
    life = entry.make(lambda: StraightLine(
        entry.number("price"), entry.number("residual", ZERO), since, entry.whole("useful_life_months"), method, decimals,
    ))  # fmt: skip
    until = entry.day("out_of_service") if entry.has("out_of_service") else None
    return entry.make(lambda: Asset(
        entry.text("id"), entry.texts("nodes"), entry.text("gpu_type"), entry.whole("gpus"), life, since, until,
        entry.number("vat", ZERO), entry.text("cluster", ""),
    ))  # fmt: skip


def _cost(entry: _Entry) -> RunningCost:
    until = entry.day("to") if entry.has("to") else None
    return entry.make(lambda: RunningCost(
        entry.text("id"), cast(Any, entry.text("kind")), entry.number("monthly"), entry.day("from"), until,
        cast(Any, entry.text("spread", "gpus")), entry.texts("over") if entry.has("over") else (),
        entry.number("vat_percent", ZERO),
    ))  # fmt: skip


def _power(entry: _Entry) -> PowerEntry:
    readings = []
    for one in entry.entries("readings", "reading", READING_FIELDS):
        readings.append(Reading(time_of(one.node("at"), one.name, "at"), one.number("kwh")))
    declared = entry.months("kwh") if entry.has("kwh") else None
    nodes = entry.texts("nodes")
    return entry.make(lambda: PowerEntry(
        entry.text("id"), nodes, cast(Any, entry.text("meter")), entry.text("site", nodes[0] if nodes else ""), tuple(readings),
        declared,
    ))  # fmt: skip


class _Entry:
    """A mapping of the file, its values read by type; each fault names the line of its field."""

    def __init__(self, node: Node, name: str, what: str, allowed: frozenset[str]) -> None:
        self._node, self.name, self._what = node, name, what
        self._fields = fields_of(node, name, what, allowed)

    def has(self, field: str) -> bool:
        return field in self._fields

    def place(self, field: str) -> str:
        return place_of(self._fields.get(FIELD_NAMES.get(field, field), self._node), self.name)

    def node(self, field: str) -> Node:
        if field not in self._fields:
            raise BadInput(f"is missing in this {self._what}", where=place_of(self._node, self.name), field=field)
        return self._fields[field]

    def text(self, field: str, default: str | None = None) -> str:
        if default is not None and not self.has(field):
            return default
        found = text_of(self.node(field), self.name, field)
        if not found:
            raise BadInput("must not be empty", where=self.place(field), field=field)
        return found

    def texts(self, field: str) -> tuple[str, ...]:
        node = self.node(field)
        listed = node.value if isinstance(node, SequenceNode) else [node]
        return tuple(text_of(one, self.name, field) for one in listed)

    def number(self, field: str, default: Decimal | None = None) -> Decimal:
        if default is not None and not self.has(field):
            return default
        return self._number(self.node(field), field)

    def whole(self, field: str, default: int | None = None) -> int:
        if default is not None and not self.has(field):
            return default
        found = self.text(field)
        if not found.isascii() or not found.isdigit():
            raise BadInput("must be a whole number", where=self.place(field), field=field, value=found)
        return int(found)

    def day(self, field: str) -> date:
        found = self.text(field)
        try:
            return date.fromisoformat(found)
        except ValueError as error:
            raise BadInput("is no day", where=self.place(field), field=field, value=found, hint="write 2026-07-31") from error

    def months(self, field: str) -> Mapping[date, Decimal]:
        node = self.node(field)
        if not isinstance(node, MappingNode):
            raise BadInput("must map months to kWh", where=self.place(field), field=field, hint="write {2026-07: 1234.5}")
        found: dict[date, Decimal] = {}
        for key, value in node.value:
            month = text_of(key, self.name, field)
            try:
                found[date.fromisoformat(f"{month}-01")] = self._number(value, field)
            except ValueError as error:
                place = place_of(key, self.name)
                raise BadInput("is no month", where=place, field=field, value=month, hint="write 2026-07") from error
        return found

    def entries(self, field: str, what: str, allowed: frozenset[str]) -> list[_Entry]:
        if not self.has(field):
            return []
        node = self.node(field)
        if not isinstance(node, SequenceNode):
            raise BadInput("must be a list", where=self.place(field), field=field)
        return [_Entry(one, self.name, what, allowed) for one in node.value]

    def make(self, build: Callable[[], Made]) -> Made:
        """``build()``, its faults with the place of their field."""
        try:
            return build()
        except BadInput as error:
            error.where = error.where or self.place(error.field)
            raise

    def _number(self, node: Node, field: str) -> Decimal:
        try:
            return decimal_of(node, self.name)
        except BadInput as error:
            error.field = field
            raise
