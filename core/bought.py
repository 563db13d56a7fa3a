"""Bought tokens in the ledger: requests to a vendor's API, summed by all their price depends on, priced by dated lists.

A bought model is the deployment ``vendor/VENDOR/MODEL``. Its quarter hours hold the requests that *finished* in them (vendors
with prices by time of day go by the completion), so a price that changes on quarter hours holds for all of a sum. Capacity cost
is the sum of the lines: nothing is idle. What has no price is a hole with its tokens, never 0.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from core.allocate import LineKey, TokenKind
from core.ledger import LedgerLine, LedgerWindow
from core.money import ZERO, plain, quantize, split, total
from core.tokens import TOKEN_FIELDS, TokenSums
from core.usage import Deployment, UsageRecord
from core.vendor_book import PriceBook, Quote, quote
from core.vendor_list import PromptClass, prompt_class, sold_as
from core.vendor_price import bucket_costs
from core.windows import Window, quarter_hour

NO_TOKENS = TokenSums()
CLUSTER = "vendor"
"""The cluster of every bought deployment; its namespace is the vendor."""
PRICE_LIST = "price list"
NOTHING_IDLE = "bought: nothing is idle"
BEHIND = "the raw archive, of which bought requests are priced, has not come that far"
BEHIND_HINT = "it is priced once its segment is archived, within minutes; `tokenfuse doctor` says whether the stream runs"
MISSING = "the vendor's usage is missing"
FILL = "import a newer list, or type the price into a vendor-card (docs/vendor-prices.md)"
MISSING_HINT = "let the gateway ask for usage (stream_options.include_usage)"
_KIND_OF: Mapping[str, TokenKind] = {
    "input": "input", "cache_write_5m": "input", "cache_write_1h": "input", "cache_read": "input_cached", "output": "output",
    "reasoning": "output",
}  # fmt: skip
_BUCKET_OF = {
    "input_uncached": "input", "input_cache_read": "cache_read", "input_cache_write_5m": "cache_write_5m",
    "input_cache_write_1h": "cache_write_1h", "output": "output",
}  # fmt: skip


class BoughtKey(NamedTuple):
    """Whose requests, and all their price depends on beside the instant. ``sold``: standard, batch, flex, priority …"""

    org: str
    team: str
    project: str
    user: str
    key_id: str
    service_tier: str
    status: str
    usage_source: str
    sold: str
    prompt_above: int
    prompt_upto: int | None
    gateway_currency: str


@dataclass(frozen=True, slots=True)
class BoughtSum:
    """Requests of one key in one quarter hour. ``gateway_cost`` is what the gateway computed for ``gateway_priced`` of them."""

    key: BoughtKey
    requests: int
    tokens: TokenSums
    gateway_cost: Decimal = ZERO
    gateway_priced: int = 0


@dataclass(frozen=True, slots=True)
class Hole:
    """Tokens of one key without a price, and of how many requests they are at most: why, and what would fill it."""

    key: BoughtKey
    requests: int
    tokens: TokenSums
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class BoughtInputs:
    """All a bought quarter hour depends on. ``metered``: requests and tokens the rollups have in it; more requests than ``sums``
    means that the archive is behind."""

    deployment: Deployment
    window: Window
    sums: tuple[BoughtSum, ...]
    metered_requests: int = 0
    metered_tokens: TokenSums = NO_TOKENS
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class BoughtWindow:
    """The ledger's window and the holes beside it."""

    closed: LedgerWindow
    holes: tuple[Hole, ...]


def is_bought(deployment: Deployment) -> bool:
    return deployment.cluster == CLUSTER


def sold_word(record: UsageRecord) -> str:
    """How the request was sold, as its record says: the answer's ``service_tier`` in the usage, else what was asked for."""
    gateway = record.raw.get("litellm")
    asked = gateway.get("service_tier") if isinstance(gateway, dict) else None
    said = record.raw.get("service_tier") or asked
    return sold_as(said if isinstance(said, str) else None)


def bought_sums(records: Iterable[UsageRecord]) -> dict[tuple[Deployment, datetime], dict[BoughtKey, BoughtSum]]:
    """Bought requests by deployment, quarter hour and key. Of copies the first counts. ``eventlog.bought_sql`` gives the same of
    the archive."""
    first = {record.request_id: record for record in reversed(list(records))}
    found: defaultdict[tuple[Deployment, datetime], dict[BoughtKey, BoughtSum]] = defaultdict(dict)
    for record in first.values():
        if is_bought(record.deployment):
            at, one = quarter_hour(record.finished_at).start, _of(record)
            sums = found[record.deployment, at]
            sums[one.key] = _add(sums[one.key], one) if one.key in sums else one
    return dict(found)


def _of(record: UsageRecord) -> BoughtSum:
    t, cost, k = record.tenant, record.vendor_cost, record.tokens
    prompt = prompt_class(k.input_total)
    key = BoughtKey(
        t.org, t.team, t.project, t.user, t.key_id, record.service_tier, record.status, record.usage_source, sold_word(record),
        prompt.above, prompt.upto, cost.currency if cost else "",
    )  # fmt: skip
    return BoughtSum(key, 1, TokenSums() + k, cost.amount if cost else ZERO, int(cost is not None))


def _add(a: BoughtSum, b: BoughtSum) -> BoughtSum:
    cost = total((a.gateway_cost, b.gateway_cost))
    return BoughtSum(a.key, a.requests + b.requests, a.tokens + b.tokens, cost, a.gateway_priced + b.gateway_priced)


def close_bought(inputs: BoughtInputs, book: PriceBook) -> BoughtWindow:
    """Price the quarter hour. Σ lines.cost = Σ lines.allocated = capacity cost exactly; without any priced token the capacity
    cost is unknown. Each sum is priced exactly, the whole is rounded to the quantum once and split back."""
    quotes = {key: _quote(inputs, book, key) for key in sorted({s.key[8:11] for s in inputs.sums}, key=repr)}
    currencies = {q.prices.currency for q in quotes.values() if q.prices is not None}
    currency = min(currencies) if len(currencies) == 1 else inputs.currency
    exact: dict[LineKey, Decimal] = {}
    counted: dict[LineKey, tuple[int, int]] = {}
    holes: list[Hole] = []
    for one in sorted(inputs.sums, key=lambda s: repr(s.key)):
        found = quotes[one.key[8:11]]
        if len(currencies) > 1:
            found = _two_currencies(found, currencies)
        hole = _price(one, found, exact, counted)
        holes += [hole] if hole is not None else []
    holes += _behind(inputs)
    used = {q.label: None for key, q in quotes.items() if q.prices is not None and len(currencies) == 1}
    return BoughtWindow(_window(inputs, currency, exact, counted, holes, tuple(used)), tuple(holes))


def _quote(inputs: BoughtInputs, book: PriceBook, sold: tuple[Any, ...]) -> Quote:
    d = inputs.deployment
    return quote(book, d.namespace, d.model_id, inputs.window.start, sold[0], PromptClass(sold[1], sold[2]))


def _two_currencies(found: Quote, currencies: Iterable[str]) -> Quote:
    reason = f"its prices are in {' and '.join(sorted(currencies))}, which are never added"
    return replace(found, prices=None, reason=reason, hint="give the model one list with an alias (--source)")


def _price(
    one: BoughtSum, found: Quote, exact: dict[LineKey, Decimal], counted: dict[LineKey, tuple[int, int]]
) -> Hole | None:  # fmt: skip
    """Add the lines of the tokens that have a price; the hole with those that have none."""
    k = one.key
    if k.status == "refused" and not one.tokens.total:
        return None
    if k.usage_source == "missing":
        return Hole(k, one.requests, one.tokens, MISSING, MISSING_HINT)
    lacking, reason = _lacking(one, found)
    known = TokenSums(*(getattr(one.tokens, name) - getattr(lacking, name) for name in TOKEN_FIELDS))
    costs = bucket_costs(known, found.prices)[0] if found.prices is not None else {}
    kind = "served" if k.status == "ok" else "wasted"
    requests = one.requests if known.total or not lacking.total else 0
    tokens = {"input": known.input_uncached + known.input_cache_write_5m + known.input_cache_write_1h,
              "input_cached": known.input_cache_read, "output": known.output}  # fmt: skip
    for token_kind in [name for name in tokens if tokens[name]] or ([""] if requests else []):
        line = LineKey(kind, token_kind, k.org, k.team, k.project, k.user, k.key_id, k.service_tier, 0)  # type: ignore[arg-type]
        cost = total(amount for bucket, amount in costs.items() if _KIND_OF[bucket] == token_kind)
        exact[line] = total((exact.get(line, ZERO), cost))
        before = counted.get(line, (0, 0))
        counted[line] = before[0] + tokens.get(token_kind, 0), before[1] + requests
        requests = 0
    return Hole(k, one.requests, lacking, reason, found.hint or FILL) if lacking.total else None


def _lacking(one: BoughtSum, found: Quote) -> tuple[TokenSums, str]:
    """The tokens without a price, and why."""
    if found.prices is None:
        return one.tokens, found.reason
    names = [name for name, bucket in _BUCKET_OF.items() if getattr(found.prices, bucket) is None and getattr(one.tokens, name)]
    counts = {name: getattr(one.tokens, name) for name in names}
    if "output" in counts:
        counts["output_reasoning"] = one.tokens.output_reasoning
    what = ", ".join(_BUCKET_OF[name] for name in names)
    return TokenSums(**counts), f"{found.label} has no price of {what}" if names else ""


def _behind(inputs: BoughtInputs) -> list[Hole]:
    """Requests the rollups have and the archive's sums do not have yet; their tokens are known only where it has none at all."""
    lacking = inputs.metered_requests - sum(one.requests for one in inputs.sums)
    if lacking <= 0:
        return []
    key = BoughtKey("", "", "", "", "", "", "", "", "", 0, None, "")
    return [Hole(key, lacking, TokenSums() if inputs.sums else inputs.metered_tokens, BEHIND, BEHIND_HINT)]


def _window(
    inputs: BoughtInputs, currency: str, exact: Mapping[LineKey, Decimal], counted: Mapping[LineKey, tuple[int, int]],
    holes: Sequence[Hole], labels: tuple[str, ...],
) -> LedgerWindow:  # fmt: skip
    known = any(tokens for tokens, _ in counted.values()) or not holes
    whole = quantize(total(exact.values())) if known else None
    shares = split(whole, exact) if whole and any(exact.values()) else dict.fromkeys(exact, ZERO)
    lines = tuple(LedgerLine(key, *counted[key], shares[key], shares[key]) for key in sorted(exact)) if known else ()
    every = TokenSums(*(sum(getattr(s.tokens, name) for s in inputs.sums) for name in TOKEN_FIELDS))
    return LedgerWindow(
        deployment=inputs.deployment, window=inputs.window, state="provisional", currency=currency, capacity_cost=whole,
        used_cost=whole, utilisation_ppm=None, utilisation_source=NOTHING_IDLE if known else "", weight_source=PRICE_LIST,
        price_source="; ".join(f"{label} (list)" for label in labels) if known else "", engine_prompt_tokens=None,
        engine_generation_tokens=None, gateway_input_tokens=every.total - every.output, gateway_output_tokens=every.output,
        lines=lines, detail=_detail(inputs, currency, whole, shares, counted, holes, labels),
    )  # fmt: skip


def _detail(
    inputs: BoughtInputs, currency: str, whole: Decimal | None, shares: Mapping[LineKey, Decimal],
    counted: Mapping[LineKey, tuple[int, int]], holes: Sequence[Hole], labels: tuple[str, ...],
) -> dict[str, Any]:  # fmt: skip
    said = [s for s in inputs.sums if s.gateway_priced]
    unpriced = TokenSums(*(sum(getattr(h.tokens, name) for h in holes) for name in TOKEN_FIELDS))
    writes = unpriced.input_cache_write_5m + unpriced.input_cache_write_1h
    return {
        "bought": {"lists": list(labels), "holes": len(holes)},
        "reason": "; ".join(sorted({h.reason for h in holes})),
        "unpriced": {
            "requests": sum(h.requests for h in holes), "input": unpriced.input_uncached + writes,
            "input_cached": unpriced.input_cache_read, "output": unpriced.output,
        },
        "gateway_says": [
            {"currency": unit, "amount": plain(total(s.gateway_cost for s in said if s.key.gateway_currency == unit)),
             "requests": sum(s.gateway_priced for s in said if s.key.gateway_currency == unit)}
            for unit in sorted({s.key.gateway_currency for s in said})
        ],
        "running": _running(whole, shares, counted),
        "input_digest": _digest(inputs, currency, whole, shares, holes, labels),
    }  # fmt: skip


def _running(
    whole: Decimal | None, shares: Mapping[LineKey, Decimal], counted: Mapping[LineKey, tuple[int, int]]
) -> dict[str, str] | None:  # fmt: skip
    """Mean price of a token of each kind in this quarter hour: what the next one is estimated with until it closes."""
    if not whole:
        return None
    units = {"unit": "1", "allocated_unit": "1", "kv": "0"}
    for kind in ("input", "input_cached", "output"):
        tokens = sum(counted[key][0] for key in shares if key.token_kind == kind)
        cost = total(amount for key, amount in shares.items() if key.token_kind == kind)
        units[kind] = plain(quantize(cost / tokens)) if tokens else "0"
    return units


def _digest(
    inputs: BoughtInputs, currency: str, whole: Decimal | None, shares: Mapping[LineKey, Decimal], holes: Sequence[Hole],
    labels: tuple[str, ...],
) -> str:  # fmt: skip
    """Of what the window says: requests, their money, and the lists it is from."""
    sums = sorted(repr(s) for s in inputs.sums)
    said = [sums, currency, str(whole), sorted((repr(k), plain(v)) for k, v in shares.items()), labels]
    return hashlib.sha256(repr([*said, [(h.key, h.requests, h.reason) for h in holes]]).encode()).hexdigest()
