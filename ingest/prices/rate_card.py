"""A rate card in YAML -> rates. Every fault is named by file, line and field; numbers are read as text, never through a float."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from importlib.resources import files
from pathlib import Path
from typing import cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from core.errors import BadInput
from core.money import Money
from core.rates import NO_CURRENCY, ChargeBasis, Rate, RateKind, check_price
from core.tariff import parse_band
from ingest.small_file import read_small

MAX_BYTES = 4_000_000
CARD_FIELDS = frozenset({"version", "label", "currency", "charge_basis", "source", "rates"})
RATE_FIELDS = frozenset(
    {"kind", "sku", "price", "currency", "charge_basis", "source", "valid_from", "valid_to", "confirmed", "band"}
)


@dataclass(frozen=True, slots=True)
class RateCard:
    label: str
    rates: tuple[Rate, ...]


def read_rate_card(path: Path) -> RateCard:
    """Read a card from a file. Raises BadInput "FILE:LINE: field: …"."""
    return parse_rate_card(read_small(path, MAX_BYTES, what="rate card", hint="name a YAML rate card"), path.name)


def default_rate_card() -> RateCard:
    """The card that ships: dated on-demand list prices, labelled "list price, bill pending"."""
    return parse_rate_card((files("ingest.prices") / "default_rates.yaml").read_bytes(), "default_rates.yaml")


def parse_rate_card(body: bytes, name: str = "rate card") -> RateCard:
    """Parse YAML bytes.

    Top: ``version: 1``, ``label``, and defaults for ``currency``, ``charge_basis``, ``source``; ``rates`` is a list of
    {kind gpu_hour|node_hour|kwh|egress_gb|pue, sku (or a list of names for it), price, valid_from, valid_to?, currency?,
    charge_basis?, source?, confirmed?, band?}. Times need a zone; a date alone means its midnight UTC. A price outside
    ``core.rates.BOUNDS_USD`` needs ``confirmed: true``. The label is put before each source. ``band``: of a kwh, see
    ``core.tariff``. The price of a pue is the factor; it has no currency.
    """
    card = fields_of(compose(body, name), name, "rate card", CARD_FIELDS)
    version = card.get("version")
    if version is None or text_of(version, name, "version") != "1":
        raise BadInput("must be 1", where=name if version is None else place_of(version, name), field="version")
    label = text_of(card["label"], name, "label") if "label" in card else ""
    listed = card.get("rates")
    if not isinstance(listed, SequenceNode) or not listed.value:
        raise BadInput(
            "must be a list with at least one rate", where=name if listed is None else place_of(listed, name), field="rates"
        )
    rates: list[Rate] = []
    for node in listed.value:
        rates += _rates(node, card, label, name)
    return RateCard(label, tuple(rates))


def compose(body: bytes, name: str) -> Node:
    """YAML bytes of any card as nodes, which know their lines. Raises BadInput "FILE:LINE: …"."""
    try:
        node = yaml.compose(body.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8 text", where=name) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"is not YAML: {error.problem}", where=f"{name}:{line}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadInput("is not YAML", where=name) from error
    if node is None:
        raise BadInput("is empty", where=name, hint="see ingest/prices/default_rates.yaml for the form")
    return node


def fields_of(node: Node, name: str, what: str, allowed: frozenset[str]) -> dict[str, Node]:
    """A mapping's values by name, each known and given once."""
    if not isinstance(node, MappingNode):
        raise BadInput(f"{what} must be a mapping of names to values", where=place_of(node, name))
    found: dict[str, Node] = {}
    for key, value in node.value:
        field = text_of(key, name, what)
        if field not in allowed:
            raise BadInput("unknown field", where=place_of(key, name), field=field, hint=f"use {', '.join(sorted(allowed))}")
        if field in found:
            raise BadInput("is given twice", where=place_of(key, name), field=field)
        found[field] = value
    return found


def _rates(node: Node, card: Mapping[str, Node], label: str, name: str) -> list[Rate]:
    fields = fields_of(node, name, "rate", RATE_FIELDS)
    given = {**{k: v for k, v in card.items() if k in RATE_FIELDS}, **fields}
    needed = ("kind", "sku", "price", "valid_from", "charge_basis", "source")
    no_currency = "kind" in given and given["kind"].value == "pue"
    for field in needed if no_currency else (*needed, "currency"):
        if field not in given:
            raise BadInput("is missing", where=place_of(node, name), field=field)
    confirmed = confirmed_of(fields.get("confirmed"), name)
    source = text_of(given["source"], name, "source")
    kind = text_of(given["kind"], name, "kind")
    currency = NO_CURRENCY if kind == "pue" else text_of(given["currency"], name, "currency")
    sku = fields["sku"] if "sku" in fields else given["sku"]
    names = sku.value if isinstance(sku, SequenceNode) else [sku]
    try:
        rates = [
            Rate(
                cast(RateKind, kind),
                text_of(each, name, "sku"),
                Money(decimal_of(given["price"], name), currency),
                cast(ChargeBasis, text_of(given["charge_basis"], name, "charge_basis")),
                f"{label}: {source}" if label else source,
                time_of(given["valid_from"], name, "valid_from"),
                time_of(given["valid_to"], name, "valid_to") if "valid_to" in given else None,
                parse_band(text_of(given["band"], name, "band")) if "band" in given else None,
            )
            for each in names
        ]
        for rate in rates:
            check_price(rate, confirmed=confirmed)
    except BadInput as error:
        if error.where:
            raise
        place = given.get(error.field, node)
        raise BadInput(
            error.message, where=place_of(place, name), field=error.field, value=error.value, hint=error.hint
        ) from error
    return rates


def confirmed_of(node: Node | None, name: str) -> bool:
    """true or false; absent is false."""
    if node is None:
        return False
    text = text_of(node, name, "confirmed")
    if text not in ("true", "false"):
        raise BadInput("must be true or false", where=place_of(node, name), field="confirmed", value=text)
    return text == "true"


def text_of(node: Node, name: str, field: str) -> str:
    """One value as it is written."""
    if not isinstance(node, ScalarNode) or node.tag == "tag:yaml.org,2002:null":
        raise BadInput("must be one value", where=place_of(node, name), field=field)
    return str(node.value).strip()


def decimal_of(node: Node, name: str) -> Decimal:
    """An exact number of at most 12 decimals."""
    text = text_of(node, name, "price")
    try:
        value = Decimal(text)
    except DecimalException as error:
        raise BadInput(
            "not a decimal number", where=place_of(node, name), field="price", value=text, hint="write 1.006"
        ) from error
    if not value.is_finite():
        raise BadInput("must be finite", where=place_of(node, name), field="price", value=text)
    if -cast(int, value.as_tuple().exponent) > 12:
        raise BadInput("has more than 12 decimals", where=place_of(node, name), field="price", value=text)
    return value


def time_of(node: Node, name: str, field: str) -> datetime:
    """An aware instant in UTC; a date alone is its midnight UTC."""
    text = text_of(node, name, field)
    try:
        if len(text) == 10:
            day = date.fromisoformat(text)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
        at = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "write 2026-11-30 or 2026-11-30T12:00:00Z"
        raise BadInput("not a time", where=place_of(node, name), field=field, value=text, hint=hint) from error
    if at.tzinfo is None:
        raise BadInput("time has no zone", where=place_of(node, name), field=field, value=text, hint="add Z or an offset")
    return at.astimezone(UTC)


def place_of(node: Node, name: str) -> str:
    """FILE:LINE of a node."""
    return f"{name}:{node.start_mark.line + 1}"
