"""genai-prices' v2 data (``data.json``: providers -> models -> prices) -> sheets. Source: pydantic/genai-prices, MIT.

Prices are per million tokens. An entry's constraint is a start date (UTC midnight) or times of day (UTC); of those that hold
the last one counts. A tiered price holds for the whole request once its prompt is longer than the tier's start. A price that is
not there is unknown: the package itself would sell cached tokens at the input price.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from core.errors import BadInput
from core.vendor_list import NAMING, ModelSheet, PriceEntry, Rule, RuleKind
from core.vendor_price import TokenPrices
from ingest.prices.vendor_sheets import Refused, VendorList, entry, read_json

SOURCE = "genai-prices"
CURRENCY = "USD"
_RULES: Mapping[str, RuleKind] = {
    "equals": "exact", "starts_with": "prefix", "regex": "regex", "contains": "contains", "ends_with": "suffix",
}  # fmt: skip
_BUCKETS = {
    "input_mtok": "input", "output_mtok": "output", "cache_read_mtok": "cache_read", "cache_write_mtok": "cache_write_5m",
    "cache_write_1h_mtok": "cache_write_1h", "output_reasoning_mtok": "reasoning",
}  # fmt: skip
_PER_REQUEST = "requests_kcount"
_CONSTRAINTS = frozenset({"start_date", "start_time", "end_time"})


def read_genai_prices(body: bytes, name: str, since: datetime, label: str) -> VendorList:
    """The list. Raises BadInput "FILE: …" where it is not such a list; a model that cannot be right is refused by itself."""
    providers = read_json(body, name)
    if not isinstance(providers, list) or not all(isinstance(p, dict) and "models" in p and "id" in p for p in providers):
        raise BadInput("is not genai-prices' data.json", where=name, hint="take prices/new_data/v2/data.json of its repository")
    found = VendorList(SOURCE)
    for provider in providers:
        for model in provider["models"]:
            _take(found, str(provider["id"]), model, since, label)
    return found


def _take(found: VendorList, vendor: str, model: Any, since: datetime, label: str) -> None:
    name = f"{vendor}/{model.get('id', '?')}" if isinstance(model, dict) else f"{vendor}/?"
    try:
        entries = tuple(_entries(model))
        if not any(e.free or e.prices.named() for e in entries):
            found.left_out["no price per token"] += 1
            return
        rules = tuple(dict.fromkeys([Rule("exact", model["id"]), *_rules(model["match"])]))
        sheet = ModelSheet(SOURCE, vendor, model["id"], rules, entries, since, label)
    except BadInput as error:
        found.refused.append(Refused(name, str(error)))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        found.refused.append(Refused(name, f"is not in the form of the list: {error}"))
    else:
        found.sheets.append(sheet)
        found.rules_not_used += sum(rule.kind not in NAMING for rule in sheet.rules)


def _rules(match: Mapping[str, Any]) -> Iterator[Rule]:
    """The alternatives of a match. Two that must hold together are kept as one that guesses: they are never used alone."""
    for kind, value in match.items():
        if kind == "or":
            for part in value:
                yield from _rules(part)
        elif kind == "and":
            texts = [str(text) for part in value for text in part.values() if isinstance(text, str)]
            if texts:
                yield Rule("contains", max(texts, key=len))
        elif kind in _RULES:
            yield Rule(_RULES[kind], str(value))
        else:
            raise BadInput("unknown kind of match", field="match", value=kind)


def _entries(model: Mapping[str, Any]) -> Iterator[PriceEntry]:
    prices = model["prices"]
    for one in prices if isinstance(prices, list) else [{"prices": prices}]:
        conditions = _conditions(one.get("constraint") or {})
        if not one["prices"] and str(model["id"]).endswith(":free"):
            yield PriceEntry(TokenPrices(CURRENCY, *[Decimal(0)] * 6), free=True, **conditions)
        elif one["prices"]:
            yield from _tiers(one["prices"], conditions)


def _conditions(constraint: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(constraint) - _CONSTRAINTS
    if unknown:
        raise BadInput("unknown constraint", field="constraint", value=", ".join(sorted(unknown)))
    found: dict[str, Any] = {}
    if "start_date" in constraint:
        day = date.fromisoformat(constraint["start_date"])
        found["starts_at"] = datetime(day.year, day.month, day.day, tzinfo=UTC)
    if "start_time" in constraint:
        found |= {"day_from": _clock(constraint["start_time"]), "day_to": _clock(constraint["end_time"])}
    return found


def _clock(text: str) -> time:
    at = time.fromisoformat(text)
    if at.tzinfo is None or at.utcoffset():
        raise BadInput("is not a time of day in UTC", field="constraint", value=text)
    return at.replace(tzinfo=None)


def _tiers(prices: Mapping[str, Any], conditions: Mapping[str, Any]) -> Iterator[PriceEntry]:
    if _PER_REQUEST in prices:
        raise BadInput("is sold per request as well as per token, which is not kept", field=_PER_REQUEST)
    known = {_BUCKETS[key]: value for key, value in prices.items() if key in _BUCKETS}
    if not known:
        return
    starts = {int(t["start"]) for value in known.values() if isinstance(value, dict) for t in value["tiers"]}
    for above in sorted({0, *starts}):
        at = {bucket: _price(value, above) for bucket, value in known.items()}
        yield entry(at, CURRENCY, above_tokens=above, **conditions)


def _price(value: Any, above: int) -> Decimal:
    """The price of prompts just longer than ``above``."""
    if not isinstance(value, dict):
        return Decimal(value)
    reached = [tier for tier in value["tiers"] if int(tier["start"]) <= above]
    return Decimal(max(reached, key=lambda tier: tier["start"])["price"] if reached else value["base"])
