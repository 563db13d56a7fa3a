"""A vendor card in YAML: prices a person types for what no list has (a contract, a vendor in another currency) -> sheets.

Every fault is named by file, line and field; numbers are read as text, never through a float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from yaml.nodes import Node, SequenceNode

from core.errors import BadInput
from core.vendor_list import STANDARD, ModelSheet, PriceEntry, Rule, sold_as
from core.vendor_price import TokenPrices, check_token_prices
from ingest.prices.rate_card import compose, confirmed_of, decimal_of, fields_of, place_of, text_of, time_of
from ingest.prices.vendor_sheets import BUCKETS, VendorList

SOURCE = "vendor-card"
CARD_FIELDS = frozenset({"version", "label", "currency", "models"})
MODEL_FIELDS = frozenset({"vendor", "model", "currency", "valid_from", "prices"})
PRICE_FIELDS = frozenset(
    {*BUCKETS, "tier", "above_tokens", "starts_at", "day_from", "day_to", "zone", "free", "confirmed"}
)  # fmt: skip


def read_vendor_card(body: bytes, name: str, since: datetime, label: str) -> VendorList:
    """``version: 1``, ``label``, ``currency``, ``models``: [{vendor, model, valid_from?, currency?, prices: [{input, output,
    cache_read, cache_write_5m, cache_write_1h, reasoning (each per million tokens), tier, above_tokens, starts_at, day_from,
    day_to, zone, free, confirmed}]}]. Of the prices that hold the last one counts. Raises BadInput "FILE:LINE: …"."""
    card = fields_of(compose(body, name), name, "vendor card", CARD_FIELDS)
    if "version" not in card or text_of(card["version"], name, "version") != "1":
        raise BadInput("must be 1", where=name, field="version")
    listed = card.get("models")
    if not isinstance(listed, SequenceNode) or not listed.value:
        raise BadInput("must be a list with at least one model", where=name, field="models")
    label = text_of(card["label"], name, "label") if "label" in card else label
    found = VendorList(SOURCE)
    for node in listed.value:
        found.sheets.append(_sheet(node, card, name, since, label))
    keys = [sheet.key for sheet in found.sheets]
    for key in keys:
        if keys.count(key) > 1:
            raise BadInput(
                "is given twice: put all prices of a model together", where=name, field="model", value="/".join(key[1:])
            )
    return found


def _sheet(node: Node, card: Mapping[str, Node], name: str, since: datetime, label: str) -> ModelSheet:
    fields = fields_of(node, name, "model", MODEL_FIELDS)
    for field in ("vendor", "model", "prices"):
        if field not in fields:
            raise BadInput("is missing", where=place_of(node, name), field=field)
    currency = fields.get("currency", card.get("currency"))
    if currency is None:
        raise BadInput("is missing", where=place_of(node, name), field="currency")
    prices = fields["prices"]
    if not isinstance(prices, SequenceNode) or not prices.value:
        raise BadInput("must be a list with at least one price", where=place_of(prices, name), field="prices")
    model = text_of(fields["model"], name, "model")
    start = time_of(fields["valid_from"], name, "valid_from") if "valid_from" in fields else since
    entries = tuple(_entries(prices, text_of(currency, name, "currency"), name))
    return ModelSheet(SOURCE, text_of(fields["vendor"], name, "vendor"), model, (Rule("exact", model),), entries, start, label)


def _entries(prices: SequenceNode, currency: str, name: str) -> Iterator[PriceEntry]:
    for node in prices.value:
        fields = fields_of(node, name, "price", PRICE_FIELDS)
        free = "free" in fields and confirmed_of(fields["free"], name)
        known: dict[str, Decimal] = {bucket: decimal_of(fields[bucket], name) for bucket in BUCKETS if bucket in fields}
        try:
            found = TokenPrices(currency, **(dict.fromkeys(BUCKETS, Decimal(0)) if free else known))
            if not free:
                check_token_prices(found, confirmed=confirmed_of(fields.get("confirmed"), name))
            yield PriceEntry(found, free=free, **_conditions(fields, name))
        except BadInput as error:
            if error.where:
                raise
            place = fields.get(error.field, node)
            raise BadInput(
                error.message, where=place_of(place, name), field=error.field, value=error.value, hint=error.hint
            ) from error


def _conditions(fields: Mapping[str, Node], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"tier": sold_as(text_of(fields["tier"], name, "tier")) if "tier" in fields else STANDARD}
    if "above_tokens" in fields:
        found["above_tokens"] = int(decimal_of(fields["above_tokens"], name))
    if "starts_at" in fields:
        found["starts_at"] = time_of(fields["starts_at"], name, "starts_at")
    if "zone" in fields:
        found["zone_name"] = text_of(fields["zone"], name, "zone")
    for field in ("day_from", "day_to"):
        if field in fields:
            said = text_of(fields[field], name, field)
            try:
                found[field] = time.fromisoformat(said)
            except ValueError as error:
                hint = 'write "00:30"'
                raise BadInput(
                    "not a time of day", where=place_of(fields[field], name), field=field, value=said, hint=hint
                ) from error
    return found
