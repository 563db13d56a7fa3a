"""LiteLLM's ``model_prices_and_context_window.json`` -> sheets. Source: BerriAI/litellm, MIT.

Prices there are dollars per token and become per million by moving the point, never through a float. ``_batches``, ``_flex``,
``_priority`` and further endings are ways a request is sold; ``_above_200k_tokens`` holds for the whole request once its prompt
is longer. 0 is unknown: the list has many models at 0 that are not free. ``sample_spec`` is documentation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from core.errors import BadInput
from core.vendor_list import STANDARD, ModelSheet, PriceEntry, Rule, sold_as
from core.vendor_price import PER_TOKENS
from ingest.prices.vendor_sheets import Refused, VendorList, entry, read_json

SOURCE = "litellm-prices"
CURRENCY = "USD"
_BUCKETS = {
    "input_cost_per_token": "input", "output_cost_per_token": "output", "cache_read_input_token_cost": "cache_read",
    "cache_creation_input_token_cost": "cache_write_5m", "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "output_cost_per_reasoning_token": "reasoning",
}  # fmt: skip
_LEGACY_CACHE_READ = "input_cost_per_token_cache_hit"
_PER_REQUEST = "input_cost_per_request"
_PRICED = re.compile(
    rf"({'|'.join(sorted(_BUCKETS, key=len, reverse=True))})(?:_above_(\d+)k_tokens)?(?:_(?!above_|cache_hit|per_)([a-z]+))?"
)
_Prices = dict[str, Decimal]


def read_litellm_prices(body: bytes, name: str, since: datetime, label: str) -> VendorList:
    """The list. Raises BadInput "FILE: …" where it is not such a list; a model that cannot be right is refused by itself."""
    models = read_json(body, name)
    if not isinstance(models, dict) or not any(isinstance(m, dict) and "litellm_provider" in m for m in models.values()):
        raise BadInput("is not LiteLLM's model_prices_and_context_window.json", where=name)
    found = VendorList(SOURCE)
    sheets: dict[tuple[str, str], tuple[str, ModelSheet]] = {}
    for key, model in models.items():
        if key == "sample_spec" or not isinstance(model, dict):
            continue
        sheet = _sheet(found, key, model, since, label)
        if sheet is None:
            continue
        place = (sheet.vendor, sheet.model.casefold())
        former = sheets.get(place)
        if former is not None and former[1].entries != sheet.entries:
            found.refused.append(Refused(min(key, former[0], key=len), "another entry of the same vendor and model disagrees"))
        if former is None or len(key) > len(former[0]):
            sheets[place] = key, sheet
    found.sheets = [sheet for _, sheet in sheets.values()]
    return found


def _sheet(found: VendorList, key: str, model: Mapping[str, Any], since: datetime, label: str) -> ModelSheet | None:
    """The one with the vendor's name before it wins over a short name: that is how LiteLLM looks a bought call up."""
    provider = model.get("litellm_provider")
    if not isinstance(provider, str) or not provider:
        found.left_out["no vendor"] += 1
        return None
    vendor = "vertex_ai" if provider.startswith("vertex_ai") else provider.removesuffix("-embedding-models")
    name = key.removeprefix(f"{vendor}/")
    try:
        if _PER_REQUEST in model:
            raise BadInput("is sold per request as well as per token, which is not kept", field=_PER_REQUEST)
        entries = tuple(_entries(found, model))
        if not entries:
            found.left_out["no price per token"] += 1
            return None
        rules = tuple(dict.fromkeys((Rule("exact", name), Rule("exact", key))))
        return ModelSheet(SOURCE, vendor, name, rules, entries, since, label)
    except BadInput as error:
        found.refused.append(Refused(key, str(error)))
    except (KeyError, TypeError, ValueError) as error:
        found.refused.append(Refused(key, f"is not in the form of the list: {error}"))
    return None


def _entries(found: VendorList, model: Mapping[str, Any]) -> Iterator[PriceEntry]:
    prices: defaultdict[str, defaultdict[int, _Prices]] = defaultdict(lambda: defaultdict(dict))
    for field, value in model.items():
        match = _PRICED.fullmatch(field)
        price = _per_million(found, field, value) if match else None
        if match and price is not None:
            prices[sold_as(match[3])][int(match[2] or 0) * 1000][_BUCKETS[match[1]]] = price
    _legacy_cache_read(found, model, prices[STANDARD][0])
    for step in model.get("tiered_pricing") or ():
        _step(found, step, prices[STANDARD])
    for tier in sorted(prices, key=lambda name: (name != STANDARD, name)):
        base = prices[tier].get(0, {})
        for above in sorted(prices[tier]):
            if at := {**base, **prices[tier][above]}:
                yield entry(at, CURRENCY, tier=tier, above_tokens=above)


def _step(found: VendorList, step: Mapping[str, Any], prices: defaultdict[int, _Prices]) -> None:
    """Alibaba's steps by prompt length: the whole request at the price of its step."""
    if "range" not in step:
        return
    at = {_BUCKETS[key]: _per_million(found, key, value) for key, value in step.items() if key in _BUCKETS}
    prices[int(step["range"][0])].update({bucket: price for bucket, price in at.items() if price is not None})


def _legacy_cache_read(found: VendorList, model: Mapping[str, Any], prices: _Prices) -> None:
    legacy = _per_million(found, _LEGACY_CACHE_READ, model.get(_LEGACY_CACHE_READ))
    if legacy is None:
        return
    if prices.setdefault("cache_read", legacy) != legacy:
        raise BadInput(
            f"disagrees with cache_read_input_token_cost {prices['cache_read']}", field=_LEGACY_CACHE_READ, value=legacy
        )


def _per_million(found: VendorList, field: str, value: Any) -> Decimal | None:
    if value is None:
        return None
    if not isinstance(value, Decimal):
        raise BadInput("is not a number", field=field, value=value)
    if value == 0:
        found.unknown_zeros += 1
        return None
    return value.scaleb(PER_TOKENS)
