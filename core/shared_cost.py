"""Shared cost (gateway, platform, storage, network): charges taken by rules, and shared exactly over deployments or tenants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, DecimalException
from typing import Literal, get_args

from core.billing import BUCKETS
from core.errors import BadInput
from core.money import ZERO, plain, split, total
from core.period_line import PeriodLine

Method = Literal["weight", "even", "fixed"]
Target = Literal["deployment", "tenant"]
METHODS: tuple[Method, ...] = get_args(Method)
TARGETS: tuple[Target, ...] = get_args(Target)
DEPLOYMENT_PARTS, TENANT_PARTS = 3, 2


@dataclass(frozen=True, slots=True, order=True)
class SharedCharge:
    """Charges of one UTC day (None: the bill names none) alike in what selectors ask for; ``cost`` is effective, exact."""

    day: date | None
    bucket: str
    service: str
    resource_id: str
    currency: str
    cost: Decimal
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """What a rule takes: charges that have every property named; '' and empty ask nothing."""

    buckets: frozenset[str] = frozenset()
    service: str = ""
    resource_id: str = ""
    tag: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if not (self.buckets or self.service or self.resource_id or self.tag):
            hint = "name a bucket, a service, a resource or a tag: a rule that takes everything hides what nobody looked at"
            raise BadInput("asks for nothing", field="selector", hint=hint)
        unknown = sorted(self.buckets - set(BUCKETS))
        if unknown:
            raise BadInput("is no bucket", field="bucket", value=unknown[0], hint=f"use {', '.join(BUCKETS)}")
        if "split_memo" in self.buckets:
            raise BadInput("repeats cost of other rows", field="bucket", value="split_memo", hint="share the rows it repeats")

    def takes(self, charge: SharedCharge) -> bool:
        return (
            (not self.buckets or charge.bucket in self.buckets)
            and self.service in ("", charge.service)
            and self.resource_id in ("", charge.resource_id)
            and (self.tag is None or self.tag in charge.tags)
        )


@dataclass(frozen=True, slots=True)
class SharedRule:
    """Takes charges of days in ``[valid_from, valid_to)``; rules are asked by ``position``, then name, and the first takes.

    ``weight``: by deployments' capacity cost, or tenants' allocated cost, of the month. ``even``: over those with any. ``fixed``:
    ``shares`` by CLUSTER/NAMESPACE/MODEL or ORG[/TEAM], which sum to one.
    """

    name: str
    position: int
    selector: Selector
    method: Method
    target: Target
    valid_from: date
    owner: str
    valid_to: date | None = None
    shares: Mapping[str, Decimal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("name", self.name), ("owner", self.owner)):
            if not value.strip():
                raise BadInput("must not be empty", field=name, value=value)
        for name, value, allowed in (("method", self.method, METHODS), ("over", self.target, TARGETS)):
            if value not in allowed:
                raise BadInput(f"must be one of {', '.join(allowed)}", field=name, value=value)
        if self.valid_to is not None and self.valid_to <= self.valid_from:
            raise BadInput("must be after its first day", field="valid_to", value=self.valid_to.isoformat())
        self._check_shares()

    def _check_shares(self) -> None:
        if self.method != "fixed":
            if self.shares:
                raise BadInput(f"are for method fixed, not {self.method}", field="shares")
            return
        if any(share < 0 for share in self.shares.values()):
            raise BadInput("must not be negative", field="shares", value=_listed(self.shares))
        if total(self.shares.values()) != 1:
            raise BadInput("must sum to one", field="shares", value=_listed(self.shares), hint="write 0.25 for a quarter")
        for holder in self.shares:
            place_of(self.target, holder)

    def holds(self, charge: SharedCharge, month: date) -> bool:
        """Whether it takes the charge; one without a day counts for the first of ``month``."""
        day = charge.day or month
        return self.valid_from <= day and (self.valid_to is None or day < self.valid_to) and self.selector.takes(charge)


@dataclass(frozen=True, slots=True)
class Weights:
    """Money of the month in one currency: capacity cost by CLUSTER/NAMESPACE/MODEL, allocated cost by ORG[/TEAM]."""

    deployment: Mapping[str, Decimal] = field(default_factory=dict)
    tenant: Mapping[str, Decimal] = field(default_factory=dict)

    def of(self, target: Target) -> Mapping[str, Decimal]:
        return self.deployment if target == "deployment" else self.tenant


def parse_shares(texts: Iterable[str]) -> dict[str, Decimal]:
    """``acme/search=0.25`` … Raises BadInput naming the text."""
    found: dict[str, Decimal] = {}
    for text in texts:
        holder, equals, share = text.rpartition("=")
        try:
            found[holder] = Decimal(share)
        except DecimalException as error:
            raise BadInput("is no share", field="shares", value=text, hint="write acme/search=0.25") from error
        if not equals or not found[holder].is_finite():
            raise BadInput("is no share", field="shares", value=text, hint="write acme/search=0.25")
    return found


def share_costs(
    charges: Iterable[SharedCharge], rules: Sequence[SharedRule], weights: Mapping[str, Weights], month: date
) -> list[PeriodLine]:
    """Lines of kind ``shared`` and ``not_shared``: per currency they add up to the charges exactly, to their last decimal.

    A charge is taken by one rule at most. What a rule takes and cannot share (no weights in its currency) is not shared, and its
    name says why. ``weights`` by currency.
    """
    ordered = _ordered(rules)
    taken: dict[tuple[int, str], list[Decimal]] = {}
    left: dict[tuple[str, str], list[Decimal]] = {}
    for charge in charges:
        n = _taker(charge, ordered, month)
        if n is None:
            left.setdefault((f"{charge.bucket}: {charge.service or 'no service named'}", charge.currency), []).append(charge.cost)
        else:
            taken.setdefault((n, charge.currency), []).append(charge.cost)
    lines: list[PeriodLine] = []
    for (n, currency), costs in sorted(taken.items()):
        lines += _shared(ordered[n], currency, total(costs), weights.get(currency, Weights()))
    lines += [PeriodLine("not_shared", name, currency, total(costs)) for (name, currency), costs in sorted(left.items())]
    return [line for line in lines if line.amount]


def _shared(rule: SharedRule, currency: str, whole: Decimal, weights: Weights) -> list[PeriodLine]:
    parts = _parts(rule, weights)
    if not parts:
        return [PeriodLine("not_shared", f"{rule.name}: no {rule.target} has cost in {currency} to share it by", currency, whole)]
    return [
        PeriodLine("shared", rule.name, currency, amount, **place_of(rule.target, holder))
        for holder, amount in sorted(split(whole, parts).items())
        if amount
    ]


def _parts(rule: SharedRule, weights: Weights) -> dict[str, Decimal]:
    if rule.method == "fixed":
        return {holder: share for holder, share in rule.shares.items() if share}
    known = {holder: cost for holder, cost in weights.of(rule.target).items() if cost > ZERO}
    return known if rule.method == "weight" else dict.fromkeys(known, Decimal(1))


def place_of(target: Target, holder: str) -> dict[str, str]:
    """The keys of a line: of ``lab/prod/qwen`` or ``acme/search``. Raises BadInput."""
    if target == "deployment":
        parts = holder.split("/", DEPLOYMENT_PARTS - 1)
        if len(parts) < DEPLOYMENT_PARTS or not all(parts):
            raise BadInput("is no deployment", field="shares", value=holder, hint="write CLUSTER/NAMESPACE/MODEL")
        return dict(zip(("cluster", "namespace", "model_id"), parts, strict=True))
    parts = holder.split("/")
    if len(parts) > TENANT_PARTS or not parts[0]:
        raise BadInput("is no tenant", field="shares", value=holder, hint="write ORG or ORG/TEAM")
    return dict(zip(("org", "team"), parts, strict=False))


def taken_by(charges: Iterable[SharedCharge], rules: Sequence[SharedRule], month: date) -> dict[tuple[str, str, str], Decimal]:
    """What rules take of the charges, by (rule, bucket, currency), whoever bears it."""
    ordered = _ordered(rules)
    sums: dict[tuple[str, str, str], Decimal] = {}
    for charge in charges:
        n = _taker(charge, ordered, month)
        if n is not None:
            key = (ordered[n].name, charge.bucket, charge.currency)
            sums[key] = total((sums.get(key, ZERO), charge.cost))
    return sums


def _ordered(rules: Sequence[SharedRule]) -> list[SharedRule]:
    return sorted(rules, key=lambda rule: (rule.position, rule.name))


def _taker(charge: SharedCharge, ordered: Sequence[SharedRule], month: date) -> int | None:
    """The one rule that takes the charge: the first of those that hold."""
    return next((n for n, rule in enumerate(ordered) if rule.holds(charge, month)), None)


def tag_keys(rules: Collection[SharedRule]) -> list[str]:
    """The tags that selectors ask for, once each."""
    return sorted({rule.selector.tag[0] for rule in rules if rule.selector.tag})


def _listed(shares: Mapping[str, Decimal]) -> str:
    return ", ".join(f"{holder}={plain(share)}" for holder, share in shares.items()) or "none"
