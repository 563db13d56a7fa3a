"""What a price list of model vendors holds once it is read: sheets, and what was refused or left out, with the reasons."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from core.errors import BadInput
from core.vendor_list import ModelSheet, PriceEntry
from core.vendor_price import TokenPrices, check_token_prices

MAX_BYTES = 64_000_000
BUCKETS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning")


@dataclass(frozen=True, slots=True)
class Refused:
    """A model that is not taken because its prices cannot be right, or cannot be kept."""

    model: str
    reason: str


@dataclass(slots=True)
class VendorList:
    """``unknown_zeros``: prices of 0 that nothing marks as free, read as unknown. ``left_out``: entries without a price per
    token, by reason. ``rules_not_used``: models named only by rules that guess."""

    source: str
    sheets: list[ModelSheet] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    unknown_zeros: int = 0
    rules_not_used: int = 0


VendorReader = Callable[[bytes, str, datetime, str], VendorList]
"""(file, its name, from when its prices hold, label) -> the list. Raises BadInput where the file is not such a list at all."""


def read_json(body: bytes, name: str) -> Any:
    """JSON with exact decimals. Raises BadInput naming file and line."""
    if len(body) > MAX_BYTES:
        raise BadInput(f"is larger than {MAX_BYTES} bytes", where=name)
    try:
        return json.loads(body, parse_float=Decimal, parse_int=Decimal, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise BadInput(f"is not JSON: {error.msg}", where=f"{name}:{error.lineno}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise BadInput("is not JSON", where=name) from error


def _no_number(text: str) -> Any:
    raise BadInput("is not a number", field="price", value=text)


def entry(prices: Mapping[str, Decimal | None], currency: str, *, free: bool = False, **conditions: Any) -> PriceEntry:
    """An entry whose prices are per million tokens, as exact as the list writes them. Raises BadInput for a unit slip."""
    found = TokenPrices(currency, **{name: price for name, price in prices.items() if price is not None})
    if not free:
        check_token_prices(found)
    return PriceEntry(found, free=free, **conditions)


def list_date(name: str) -> date | None:
    """The day a file's name bears (``…_2026-08-21_…``), if it does."""
    found = re.search(r"(20\d\d-\d\d-\d\d)", name)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def unpacked(body: bytes, name: str) -> bytes:
    """The bytes themselves, or those of a gzip file. Raises BadInput for one that is cut short or too large."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        with gzip.open(io.BytesIO(body)) as packed:
            found = packed.read(MAX_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise BadInput(f"is not a whole gzip file: {error}", where=name) from error
    if len(found) > MAX_BYTES:
        raise BadInput(f"unpacks to more than {MAX_BYTES} bytes", where=name)
    return found
