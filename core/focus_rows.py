"""The ledger as FOCUS 1.2 rows: an origin row for the GPU hours of a deployment, and the parts its cost was allocated to.

Each amount stands once: the parts carry the cost, the origin row 0 in every FOCUS cost column and the whole in ``x_OriginCost``
(docs/adr/0027). Columns and their rules: FOCUS 1.2; token columns as its working draft after 1.4 words them, with ``x_`` where
1.2 has no such name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Literal

from core.bought import is_bought
from core.money import CONTEXT, ZERO, quantize
from core.usage import Deployment
from core.windows import Window

ColumnType = Literal["decimal", "time", "text", "integer"]
Value = Decimal | datetime | str | int | None
Row = dict[str, Value]

US_PER_HOUR = 3_600_000_000
BLOCK = Decimal(1_000_000)
RATIO = Decimal("0.000001")
SERVICE = "Self-hosted LLM inference"
BOUGHT_SERVICE = "Bought LLM tokens"

COLUMNS: Mapping[str, ColumnType] = {
    "BilledCost": "decimal", "BillingAccountId": "text", "BillingAccountName": "text", "BillingCurrency": "text",
    "BillingPeriodEnd": "time", "BillingPeriodStart": "time", "ChargeCategory": "text", "ChargeClass": "text",
    "ChargeDescription": "text", "ChargeFrequency": "text", "ChargePeriodEnd": "time", "ChargePeriodStart": "time",
    "CommitmentDiscountStatus": "text",
    "ConsumedQuantity": "decimal", "ConsumedUnit": "text", "ContractedCost": "decimal", "EffectiveCost": "decimal",
    "InvoiceId": "text", "InvoiceIssuerName": "text", "ListCost": "decimal", "PricingCategory": "text",
    "PricingQuantity": "decimal", "PricingUnit": "text", "ProviderName": "text", "PublisherName": "text", "ResourceId": "text",
    "ResourceName": "text", "ResourceType": "text", "ServiceCategory": "text", "ServiceName": "text",
    "ServiceSubcategory": "text", "SkuId": "text", "SkuMeter": "text", "SkuPriceDetails": "text", "SkuPriceId": "text",
    "SubAccountId": "text", "SubAccountName": "text", "SubAccountType": "text", "Tags": "text",
    "x_RowKind": "text", "x_OriginId": "text", "x_OriginCost": "decimal", "x_CostWithIdle": "decimal", "x_CostBasis": "text",
    "x_ChargeBasis": "text", "x_ListCostState": "text", "x_State": "text", "x_PriceSource": "text", "x_Utilisation": "decimal",
    "x_UtilisationSource": "text", "x_WeightSource": "text", "x_Coverage": "decimal", "x_CacheReadShare": "decimal",
    "x_GpuHours": "decimal", "x_GpuTypes": "text", "x_LineKind": "text", "x_TokenKind": "text", "x_Tokens": "integer",
    "x_Requests": "integer", "x_Cluster": "text", "x_Namespace": "text", "x_ModelId": "text", "x_Organisation": "text",
    "x_Team": "text", "x_Project": "text", "x_PrincipalId": "text", "x_CredentialId": "text", "x_ServiceTier": "text",
}  # fmt: skip
"""Every column in the order of the file, and its type. All FOCUS columns come first. CommitmentDiscountStatus is always null: a
rule on ConsumedQuantity reads it, and validators fail where it is absent."""
CRITERIA: tuple[str, ...] = (
    "ACCOUNT_NAMING_SUPPORTED", "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED", "MULTIPLE_PRICING_CATEGORIES_SUPPORTED",
    "MULTIPLE_SUB_ACCOUNT_TYPES_SUPPORTED", "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED", "SUB_ACCOUNT_SUPPORTED", "TAGGING_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED",
)  # fmt: skip
"""Applicability criteria of FOCUS 1.2 that hold for these rows: there is no public price list, no region, no reservation."""

_TOKENS: Mapping[str, tuple[str, dict[str, str]]] = {
    "input": ("Input Tokens", {"x_TokenDirection": "Input", "x_TokenCacheAction": "Uncached"}),
    "input_cached": ("Cache Read Input Tokens", {"x_TokenDirection": "Input", "x_TokenCacheAction": "Read"}),
    "output": ("Output Tokens", {"x_TokenDirection": "Output"}),
}
_WORDS: Mapping[str, str] = {
    "served": "served",
    "wasted": "of failed and aborted requests",
    "unattributed": "that no usage record explains",
    "idle": "with nothing running",
    "starting": "with no engine on them",
}
_LISTED = "list"


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who shows the cost to its tenants, and the account it is shown under."""

    provider: str
    account: str


@dataclass(frozen=True, slots=True)
class Origin:
    """A deployment's closed, priced quarter hours that start in ``window``, in one currency.

    ``gpu_us``: reserved GPU time in microseconds, 0 where the inventory does not tell. The four token sums are of quarter hours
    whose engines were seen. ``charge_basis``: of the prices (``list``, ``effective`` …); several are joined by "; ".
    """

    window: Window
    deployment: Deployment
    currency: str
    cost: Decimal
    used: Decimal | None
    gpu_us: int
    gpu_types: tuple[str, ...] = ()
    charge_basis: str = ""
    price_source: str = ""
    utilisation_source: str = ""
    weight_source: str = ""
    state: str = "provisional"
    engine_in: int = 0
    engine_out: int = 0
    gateway_in: int = 0
    gateway_out: int = 0

    @property
    def id(self) -> str:
        return f"{self.deployment}@{stamp(self.window.start)}/{self.currency}"

    @property
    def is_bought(self) -> bool:
        """Tokens of a vendor's API: there are no GPU hours, so the parts stand alone."""
        return is_bought(self.deployment)

    @property
    def gpu_hours(self) -> Decimal | None:
        """Unknown where the inventory names no GPU."""
        if not self.gpu_us:
            return None
        with localcontext(CONTEXT):
            return quantize(Decimal(self.gpu_us) / US_PER_HOUR)

    @property
    def utilisation(self) -> Decimal | None:
        return None if self.used is None else _ratio(self.used, self.cost)

    @property
    def coverage(self) -> Decimal | None:
        """Engine tokens that usage records explain: Σ min(engine, gateway) / Σ engine."""
        explained = min(self.engine_in, self.gateway_in) + min(self.engine_out, self.gateway_out)
        return _ratio(Decimal(explained), Decimal(self.engine_in + self.engine_out))


@dataclass(frozen=True, slots=True)
class Part:
    """Ledger lines of one origin summed by whom they served; ``cost`` leaves idle time apart, ``allocated`` bears it."""

    kind: str
    token_kind: str
    tokens: int
    requests: int
    cost: Decimal
    allocated: Decimal
    org: str = ""
    team: str = ""
    project: str = ""
    user: str = ""
    key_id: str = ""
    service_tier: str = ""


def billing_period(at: datetime) -> Window:
    """The calendar month of UTC that holds ``at``."""
    start = at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return Window(start, (start + timedelta(days=32)).replace(day=1))


def origin_row(
    origin: Origin, parts: Iterable[Part], issuer: Issuer, invoice_id: str | None = None, *, carries_cost: bool = False
) -> Row:
    """The GPU hours of a deployment. Beside its parts, which carry the cost, it costs nothing; ``carries_cost``: it is alone."""
    hours, types = origin.gpu_hours, "+".join(origin.gpu_types) or "unknown"
    whole = list(parts)
    return {
        **_shared(origin, issuer, invoice_id),
        **_cost(origin, origin.cost if carries_cost else ZERO),
        "ChargeDescription": f"GPU hours of {origin.deployment}{'' if carries_cost else '; their cost is in the allocated rows'}",
        **_quantity(hours, "Hours", hours, "Hours"),
        **_sku(f"gpu-hour/{types}", "GPU Hours", {"GpuCount": 1, "x_GpuType": types}),
        "Tags": _json({"model": origin.deployment.model_id}),
        "x_RowKind": "origin",
        "x_OriginCost": origin.cost,
        "x_CacheReadShare": _cache_share(whole),
        "x_GpuHours": hours,
    }


def allocated_rows(origin: Origin, parts: Iterable[Part], issuer: Issuer, invoice_id: str | None = None) -> list[Row]:
    """One row a part; Σ EffectiveCost == Σ x_CostWithIdle == ``origin.cost`` when all parts of the origin are given."""
    by_tenant: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        by_tenant.setdefault(_tenant(part), []).append(part)
    shared = _shared(origin, issuer, invoice_id)
    return [
        {**shared, **_part(origin, part), "x_CacheReadShare": share}
        for own in by_tenant.values()
        for share in (_cache_share(own),)
        for part in own
    ]


def stamp(at: datetime) -> str:
    """RFC 3339 with Z, to the second: how FOCUS writes a time."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def spreadsheet_safe(text: str) -> str:
    """A name that a spreadsheet would take for a formula, with an apostrophe before it: no longer the name itself."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _shared(origin: Origin, issuer: Issuer, invoice_id: str | None) -> Row:
    period = billing_period(origin.window.start)
    place = origin.deployment
    row: Row = dict.fromkeys(COLUMNS)
    return row | {
        "BillingAccountId": issuer.account, "BillingAccountName": issuer.account, "BillingCurrency": origin.currency,
        "BillingPeriodStart": period.start, "BillingPeriodEnd": period.end, "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based", "ChargePeriodStart": origin.window.start, "ChargePeriodEnd": origin.window.end,
        "InvoiceId": invoice_id, "InvoiceIssuerName": issuer.provider, "PricingCategory": "Other",
        "ProviderName": issuer.provider, "PublisherName": place.namespace if origin.is_bought else issuer.provider,
        "ResourceId": str(place), "ResourceName": place.model_id,
        "ResourceType": "Vendor model" if origin.is_bought else "Model deployment",
        "ServiceCategory": "AI and Machine Learning", "ServiceSubcategory": "Generative AI",
        "ServiceName": BOUGHT_SERVICE if origin.is_bought else SERVICE,
        "x_OriginId": origin.id, "x_CostBasis": "allocation", "x_ChargeBasis": origin.charge_basis or None,
        "x_ListCostState": "known" if origin.charge_basis == _LISTED else "unknown", "x_State": origin.state,
        "x_PriceSource": origin.price_source or None, "x_Utilisation": origin.utilisation,
        "x_UtilisationSource": origin.utilisation_source or None, "x_WeightSource": origin.weight_source or None,
        "x_Coverage": origin.coverage, "x_GpuTypes": "; ".join(origin.gpu_types) or None, "x_Cluster": place.cluster,
        "x_Namespace": place.namespace, "x_ModelId": place.model_id,
    }  # fmt: skip


def _part(origin: Origin, part: Part) -> Row:
    place, name = origin.deployment, _WORDS.get(part.kind, part.kind)
    model = f"{place.namespace}/{place.model_id}" if origin.is_bought else place.model_id
    account = _account(part)
    told = f" for {account}" if account else ""
    if part.token_kind in _TOKENS:
        meter, details = _TOKENS[part.token_kind]
        measured = _quantity(Decimal(part.tokens), "Tokens", part.tokens / BLOCK, f"{BLOCK} Tokens")
        sku = _sku(f"{model}/{part.token_kind}", meter, {"x_ModelId": model, **details})
        description = f"{meter} of {model} {name}{told}"
    elif origin.is_bought:
        measured = _quantity(Decimal(part.requests), "Requests", Decimal(part.requests), "Requests")
        sku = _sku(f"{model}/requests", "Requests", {"x_ModelId": model})
        description = f"Requests to {model} without tokens {name}{told}"
    else:
        hours = _hours(origin, part.cost)
        measured = _quantity(hours, "Hours", hours, "Hours")
        sku = _sku(f"{model}/{part.kind}", f"{part.kind.capitalize()} GPU Hours", {"x_ModelId": model})
        description = f"GPUs of {origin.deployment} {name}{told}"
    return {
        **_cost(origin, part.cost), **measured, **sku, "ChargeDescription": description,
        "SubAccountId": account, "SubAccountName": account,
        "SubAccountType": None if account is None else "Team" if part.team else "Organisation",
        "Tags": _tags(part, model), "x_RowKind": "allocated", "x_CostWithIdle": part.allocated, "x_LineKind": part.kind,
        "x_TokenKind": part.token_kind or None, "x_Tokens": part.tokens, "x_Requests": part.requests,
        "x_Organisation": part.org or None, "x_Team": part.team or None, "x_Project": part.project or None,
        "x_PrincipalId": part.user or None, "x_CredentialId": part.key_id or None, "x_ServiceTier": part.service_tier or None,
    }  # fmt: skip


def _cost(origin: Origin, cost: Decimal) -> Row:
    """The issuer bills its tenants what the ledger allocates to them: billed, contracted and effective are one amount. List is
    known where list prices were paid; a 0 beside a cost is how FOCUS issuers write an unknown list cost."""
    listed = cost if origin.charge_basis == _LISTED else ZERO
    return {"BilledCost": cost, "EffectiveCost": cost, "ContractedCost": cost, "ListCost": listed}


def _quantity(consumed: Decimal | None, unit: str, priced: Decimal | None, block: str) -> Row:
    return {
        "ConsumedQuantity": consumed,
        "ConsumedUnit": None if consumed is None else unit,
        "PricingQuantity": priced,
        "PricingUnit": None if priced is None else block,
    }


def _sku(sku: str, meter: str, details: Mapping[str, str | int]) -> Row:
    return {"SkuId": sku, "SkuPriceId": sku, "SkuMeter": meter, "SkuPriceDetails": _json(details)}


def _hours(origin: Origin, cost: Decimal) -> Decimal | None:
    """Of the origin's GPU hours, what this cost is of its cost."""
    hours = origin.gpu_hours
    if hours is None or not origin.cost:
        return hours
    with localcontext(CONTEXT):
        return quantize(hours * cost / origin.cost)


def _tenant(part: Part) -> tuple[str, str]:
    return part.org, part.team


def _account(part: Part) -> str | None:
    """ORG/TEAM; a slash in a name is escaped, so that two tenants never have one id."""
    names = [name.replace("%", "%25").replace("/", "%2F") for name in _tenant(part)]
    return "/".join(names).rstrip("/") or None


def _tags(part: Part, model: str) -> str:
    named = {"organisation": part.org, "team": part.team, "project": part.project, "service_tier": part.service_tier}
    return _json({"model": model, **{key: value for key, value in named.items() if value}})


def _json(pairs: Mapping[str, str | int]) -> str:
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _cache_share(parts: Iterable[Part]) -> Decimal | None:
    """Share of the input tokens that were read from the cache, failed requests included; None without input."""
    read = {"input": 0, "input_cached": 0}
    for part in parts:
        if part.token_kind in read and part.kind in ("served", "wasted"):
            read[part.token_kind] += part.tokens
    return _ratio(Decimal(read["input_cached"]), Decimal(sum(read.values())))


def _ratio(part: Decimal, whole: Decimal) -> Decimal | None:
    if not whole:
        return None
    with localcontext(CONTEXT):
        return (part / whole).quantize(RATIO)
