"""Dated prices with source and currency. A missing rate is unknown, never zero; the last matching dated entry wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Literal, get_args

from core.errors import BadInput
from core.money import Money, plain
from core.tariff import Band
from core.windows import Window, require_utc

RateKind = Literal["gpu_hour", "node_hour", "kwh", "egress_gb", "pue"]
ChargeBasis = Literal["billed", "effective", "list", "contracted"]
RATE_KINDS: tuple[str, ...] = get_args(RateKind)
NO_CURRENCY = "XXX"
"""ISO 4217's code for "no currency": of a ``pue``, which is a factor (what a site draws per kWh at its machines) and no price."""
CHARGE_BASES: tuple[str, ...] = get_args(ChargeBasis)
BASIS_ORDER: tuple[ChargeBasis, ...] = ("effective", "billed", "contracted", "list")
"""Nearest to what is really paid first; the first basis under which every price of a window is known is used for all of it."""

BOUNDS_USD: dict[RateKind, tuple[Decimal, Decimal]] = {
    "gpu_hour": (Decimal("0.02"), Decimal(100)),
    "node_hour": (Decimal("0.001"), Decimal(2000)),
    "kwh": (Decimal("0.005"), Decimal(5)),
    "egress_gb": (Decimal("0.0005"), Decimal(2)),
    "pue": (Decimal(1), Decimal(4)),
}
"""A price outside these is most likely a unit slip (per month, per node, in cents) and is refused unless confirmed."""
UNIT_HINTS: dict[RateKind, str] = {
    "gpu_hour": "check the unit: one GPU for one hour, not a node, a month or cents",
    "node_hour": "check the unit: one whole machine for one hour, not one GPU, a month or cents",
    "kwh": "check the unit: one kWh in whole currency units, not cents and not an MWh",
    "egress_gb": "check the unit: one GB that leaves, not a TB and not cents",
    "pue": "check the factor: what the site draws / what its machines draw, 1.28 and not 128 %",
}

UNITS_PER_USD = {"JPY": 150, "KRW": 1400, "INR": 85, "CNY": 7, "HKD": 8, "TWD": 32, "SEK": 10, "NOK": 10, "MXN": 18, "BRL": 5}
"""Orders of magnitude for the price guard only; never used to convert money."""


def sku_key(sku: str) -> str:
    """How SKUs are compared: letter case, a leading "NVIDIA" and blanks do not matter ("NVIDIA A100 80GB" = "a100-80gb")."""
    return "-".join(word for word in sku.casefold().replace("-", " ").replace("_", " ").split() if word != "nvidia")


@dataclass(frozen=True, slots=True)
class Rate:
    """One price for one unit of ``kind``, valid in ``[valid_from, valid_to)``; an open end is None. ``band``: of a ``kwh``, the
    hours it holds in; None: always."""

    kind: RateKind
    sku: str
    price: Money
    charge_basis: ChargeBasis
    source: str
    valid_from: datetime
    valid_to: datetime | None = None
    band: Band | None = None

    def __post_init__(self) -> None:
        for name, value, allowed in (("kind", self.kind, RATE_KINDS), ("charge_basis", self.charge_basis, CHARGE_BASES)):
            if value not in allowed:
                raise BadInput(f"must be one of {', '.join(allowed)}", field=name, value=value)
        if not self.sku.strip():
            raise BadInput("must not be empty", field="sku", value=self.sku)
        if not self.source.strip():
            raise BadInput("must say where the price is from", field="source", value=self.source)
        if self.price.amount < 0:
            raise BadInput("must not be negative", field="price", value=plain(self.price.amount))
        start = require_utc(self.valid_from, "valid_from")
        if self.valid_to is not None and require_utc(self.valid_to, "valid_to") <= start:
            raise BadInput("must be after valid_from", field="valid_to", value=self.valid_to.isoformat())
        if self.band is not None and self.kind != "kwh":
            raise BadInput("only a kwh has one", field="band", value=str(self.band))
        if (self.kind == "pue") != (self.price.currency == NO_CURRENCY):
            raise BadInput("a pue, and nothing else, has no currency", field="currency", value=self.price.currency)

    def in_force(self, at: datetime) -> bool:
        """Between its dates, whatever the hour."""
        return self.valid_from <= at and (self.valid_to is None or at < self.valid_to)

    def covers(self, at: datetime) -> bool:
        return self.in_force(at) and (self.band is None or self.band.covers(at))

    def __repr__(self) -> str:
        """Without a band as it was before there were any: the digests of closed windows hold this text."""
        names = [one.name for one in fields(self) if one.name != "band" or self.band is not None]
        return f"Rate({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


@dataclass(frozen=True, slots=True)
class RateAnswer:
    """The rate, or None with the reason."""

    rate: Rate | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PricedSpan:
    """A part of a window under one rate."""

    span: Window
    rate: Rate


def check_price(rate: Rate, *, confirmed: bool = False) -> None:
    """Refuse a price that looks like a unit slip, unless a person confirmed it. Raises BadInput naming the bounds."""
    if confirmed:
        return
    scale = UNITS_PER_USD.get(rate.price.currency, 1)
    low, high = (bound * scale for bound in BOUNDS_USD[rate.kind])
    if not low <= rate.price.amount <= high:
        unit = "" if rate.price.currency == NO_CURRENCY else f" {rate.price.currency}"
        raise BadInput(
            f"{rate.kind} of {rate.sku} is outside {plain(low)}..{plain(high)}{unit}",
            field="price",
            value=plain(rate.price.amount),
            hint=f"{UNIT_HINTS[rate.kind]}; add `confirmed: true` if it is right",
        )


def rate_at(rates: Iterable[Rate], kind: RateKind, sku: str, at: datetime, charge_basis: ChargeBasis) -> RateAnswer:
    """The price in force at ``at``: of the matching entries the one with the latest ``valid_from``; of equals one that is for
    this hour before one that is for any, then the last given."""
    best = _last(_matching(rates, kind, sku, charge_basis), at)
    if best is not None:
        return RateAnswer(best)
    return RateAnswer(None, f"no {charge_basis} rate {kind} for {sku} at {require_utc(at).isoformat()}")


def pue_at(rates: Iterable[Rate], site: str, at: datetime) -> Rate | None:
    """The power usage effectiveness of a node or cluster in force at ``at``, whatever basis it was given on; None: undeclared."""
    key = sku_key(site)
    return _last([rate for rate in rates if rate.kind == "pue" and sku_key(rate.sku) == key], at)


def priced_spans(
    rates: Iterable[Rate], kind: RateKind, sku: str, window: Window, charge_basis: ChargeBasis
) -> tuple[tuple[PricedSpan, ...], str]:
    """Cut ``window`` where the price changes. Returns the spans and '', or none and the reason when any part has no price."""
    matching = _matching(rates, kind, sku, charge_basis)
    edges = {window.start, window.end}
    for rate in matching:
        edges.update(at for at in (rate.valid_from, rate.valid_to) if at is not None and window.contains(at))
        edges |= rate.band.edges(window) if rate.band is not None else set()
    points = sorted(edges)
    spans: list[PricedSpan] = []
    for start, end in pairwise(points):
        best = _last(matching, start)
        if best is None:
            return (), f"no {charge_basis} rate {kind} for {sku} at {start.isoformat()}"
        spans.append(PricedSpan(Window(start, end), best))
    return tuple(spans), ""


def _matching(rates: Iterable[Rate], kind: RateKind, sku: str, charge_basis: ChargeBasis) -> list[Rate]:
    key = sku_key(sku)
    return [r for r in rates if r.kind == kind and r.charge_basis == charge_basis and sku_key(r.sku) == key]


def _last(rates: Sequence[Rate], at: datetime) -> Rate | None:
    best: Rate | None = None
    for rate in rates:
        if rate.covers(at) and (best is None or _rank(rate) >= _rank(best)):
            best = rate
    return best


def _rank(rate: Rate) -> tuple[datetime, bool]:
    return rate.valid_from, rate.band is not None
