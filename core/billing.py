"""What a billing line is to us: a charge in FOCUS terms, in exactly one bucket, with four exact costs.

Adapters turn a vendor's lines into charges; one line may become several charges (a Savings Plan fee is a purchase and, for the
part nobody used, unused commitment), whose billed and effective costs add up to the line's. Source of the terms: FOCUS 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, get_args

from core.errors import BadInput
from core.money import ZERO, total

Bucket = Literal[
    "gpu", "other_compute", "non_gpu", "vendor_api", "unused_commitment", "unused_reservation", "commitment_fee",
    "commitment_negation", "credit", "refund", "tax", "discount", "correction", "adjustment", "split_memo", "unknown",
]  # fmt: skip
BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
"""The order in which they are shown. ``split_memo`` repeats cost of other rows: its costs are kept beside, never in a sum."""

Kind = Literal[
    "usage", "purchase", "commitment_purchase", "commitment_fee", "commitment_negation", "commitment_unused",
    "reservation_unused", "credit", "refund", "tax", "discount", "adjustment", "split", "unknown",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
"""What the line is, whoever issued it. ``purchase`` buys nothing that other rows use up; ``commitment_*`` do."""

Family = Literal["gpu", "compute", "ai_api", "other", "unknown"]
FAMILIES: tuple[Family, ...] = get_args(Family)
"""What was bought: accelerators, other machines, tokens of a vendor's API, anything else; unknown: the line does not say."""

CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
"""FOCUS ChargeCategory."""
COSTS = ("billed", "effective", "list", "contracted")


@dataclass(frozen=True, slots=True)
class BucketRule:
    """A charge whose fields all have one of the named values belongs to ``bucket``; the first rule that holds decides."""

    bucket: Bucket
    when: Mapping[str, frozenset[str]]


def _rule(bucket: Bucket, **when: str) -> BucketRule:
    return BucketRule(bucket, {name: frozenset(values.split("|")) for name, values in when.items()})


BUCKET_RULES: tuple[BucketRule, ...] = (
    _rule("split_memo", kind="split"),
    _rule("correction", charge_class="Correction"),
    _rule("tax", kind="tax"),
    _rule("credit", kind="credit"),
    _rule("refund", kind="refund"),
    _rule("discount", kind="discount"),
    _rule("adjustment", kind="adjustment"),
    _rule("commitment_negation", kind="commitment_negation"),
    _rule("commitment_fee", kind="commitment_fee|commitment_purchase"),
    _rule("unused_commitment", kind="commitment_unused"),
    _rule("unused_reservation", kind="reservation_unused"),
    _rule("gpu", kind="usage|purchase", family="gpu"),
    _rule("vendor_api", kind="usage|purchase", family="ai_api"),
    _rule("other_compute", kind="usage|purchase", family="compute"),
    _rule("non_gpu", kind="usage|purchase", family="other"),
)
"""The one statement of the rule: ``bucket_of`` reads it here, ``ingest.billing.sql`` writes it as SQL."""


def bucket_of(kind: str, charge_class: str, family: str) -> Bucket:
    """The bucket of a charge; what no rule knows is ``unknown``, and is shown."""
    fields = {"kind": kind, "charge_class": charge_class, "family": family}
    for rule in BUCKET_RULES:
        if all(fields[name] in allowed for name, allowed in rule.when.items()):
            return rule.bucket
    return "unknown"


GPU_INSTANCES: Mapping[str, str] = {
    "aws": r"^(ml\.)?(p[1-9][a-z]*|g[2-9][a-z]*|gr[0-9][a-z]*|trn[0-9][a-z]*|inf[0-9][a-z]*|dl[0-9][a-z]*)(-[a-z0-9]+)?\.",
    "azure": r"^(standard_)?n[cdgpv][a-z0-9]*([_ ]|$)",
    "gcp": r"^(a[2-9]|g[2-9])-",
    "alibaba": r"^(ecs\.)?(gn|ebmgn|sccgn|vgn|sgn)[0-9]",
    "tencent": r"^(gn|gt|gi|pnv|hcc[a-z]*g)[0-9a-z]*\.",
    "volcengine": r"^(ecs\.)?(gn|gni|pni|hpcpni|ebmhpc|ebmgn|g1|ini)[0-9]",
}
"""Instance types with accelerators by cloud: expressions that Python and RE2 read alike, on lower-cased names."""


def is_gpu_instance(provider: str, instance_type: str) -> bool:
    """Whether the cloud ``provider`` sells ``instance_type`` with accelerators; an unknown cloud is tried with all patterns."""
    name = instance_type.lower()
    patterns = [GPU_INSTANCES[provider]] if provider in GPU_INSTANCES else list(GPU_INSTANCES.values())
    return any(re.search(pattern, name) is not None for pattern in patterns)


def known_list(kind: str, list_cost: Decimal | None, effective: Decimal) -> Decimal | None:
    """A list cost of 0 on something used at a cost means that the issuer does not know it, in practice; what is nothing used
    (``WITHOUT_LIST``) has none."""
    if kind in WITHOUT_LIST:
        return None
    return None if kind in ("usage", "purchase") and list_cost == 0 and effective != 0 else list_cost


def month_of(period: date) -> date:
    """The month a billing period belongs to wherever a month is asked for: that of its first day, whatever day that is."""
    return period.replace(day=1)


def period_name(period: date) -> str:
    """How a billing period is shown: "2026-07", and with its first day where that is not the month's."""
    return f"{period:%Y-%m}" if period.day == 1 else period.isoformat()


@dataclass(frozen=True, slots=True)
class Charge:
    """One billing line, or part of one. Empty text: the line does not say. A cost of None is unknown, never zero."""

    provider: str
    billing_account: str
    billing_period: date
    """First day of the issuer's period."""
    charge_start: datetime | None
    currency: str
    kind: str
    billed: Decimal
    effective: Decimal
    list: Decimal | None = None
    contracted: Decimal | None = None
    charge_category: str = "Usage"
    charge_class: str = ""
    family: str = "unknown"
    memo: Decimal = ZERO
    """Cost that other rows already hold (split rows): for reading beside them, in no sum."""
    account: str = ""
    service: str = ""
    region: str = ""
    resource_id: str = ""
    instance_type: str = ""
    sku: str = ""
    meter: str = ""
    commitment_id: str = ""
    invoice_id: str = ""
    quantity: Decimal | None = None
    unit: str = ""
    hours: Decimal | None = None
    """Instance hours, where the line is a machine's own running time; not set on memo, fee and negation rows."""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def bucket(self) -> Bucket:
        return bucket_of(self.kind, self.charge_class, self.family)


@dataclass(frozen=True, slots=True)
class Savings:
    """List against effective cost of what was used: rows that buy other rows, credits, refunds, discounts, taxes and adjustments
    are left out, unknown list prices counted apart."""

    currency: str
    list: Decimal
    effective: Decimal
    rows_without_list: int
    effective_without_list: Decimal

    @property
    def saved(self) -> Decimal:
        return self.list - self.effective


WITHOUT_LIST: frozenset[str] = frozenset({"credit", "refund", "tax", "discount", "adjustment"})
"""Kinds, and the buckets of the same names, that nothing is used by: they have no list price, whatever their line says."""
NOT_IN_SAVINGS: frozenset[str] = frozenset({"commitment_fee", "commitment_negation", "split_memo"}) | WITHOUT_LIST


def savings(charges: Iterable[Charge]) -> Savings:
    """Savings of charges of one currency. Raises BadInput when they have several."""
    rows = [charge for charge in charges if charge.bucket not in NOT_IN_SAVINGS and charge.kind not in WITHOUT_LIST]
    currencies = {charge.currency for charge in rows}
    if len(currencies) > 1:
        raise BadInput("charges of several currencies", field="currency", value=sorted(currencies), hint="ask for one at a time")
    known = [charge for charge in rows if charge.list is not None]
    unknown = [charge for charge in rows if charge.list is None]
    return Savings(
        currency=next(iter(currencies), ""),
        list=total(charge.list for charge in known if charge.list is not None),
        effective=total(charge.effective for charge in known),
        rows_without_list=len(unknown),
        effective_without_list=total(charge.effective for charge in unknown),
    )
