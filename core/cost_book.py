"""What own racks cost, month by month: assets, running costs and power as the lines of an invoice that is issued to oneself.

Every amount is of one calendar month (UTC), shared over its days and the nodes in service on each, exactly: the lines of a month
add up to the amounts of its entries. What no node bears is a line without a node, never lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal, localcontext
from typing import Literal, get_args

from core.depreciation import CENTS, StraightLine, add_months
from core.errors import BadInput
from core.money import CONTEXT, ZERO, plain, quantize, split

CostKind = Literal["rent", "support", "staff", "network", "other"]
COST_KINDS: tuple[str, ...] = get_args(CostKind)
Spread = Literal["gpus", "nodes", "none"]
SPREADS: tuple[str, ...] = get_args(Spread)
"""Over the nodes in service: by their GPUs, evenly, or to nobody (a line without a node)."""
DAY_HOURS = Decimal(24)


@dataclass(frozen=True, slots=True)
class Asset:
    """Machines bought together: the price is shared evenly by their ``nodes``. In service on [since, until) days."""

    id: str
    nodes: tuple[str, ...]
    gpu_type: str
    gpus: int
    """Of one node."""
    life: StraightLine
    since: date
    until: date | None = None
    vat: Decimal = ZERO
    """Paid with the price: a tax line of the month of ``since``, in no other amount."""
    cluster: str = ""

    def __post_init__(self) -> None:
        if not self.nodes or len(set(self.nodes)) != len(self.nodes):
            raise BadInput("must name each node once", field="nodes", value=", ".join(self.nodes))
        if self.gpus < 1:
            raise BadInput("must be at least 1", field="gpus", value=self.gpus)
        if self.until is not None and self.until <= self.since:
            raise BadInput("must be after in_service_from", field="out_of_service", value=self.until.isoformat())
        if self.vat < 0:
            raise BadInput("must not be negative", field="vat", value=str(self.vat))

    def in_service(self, day: date) -> bool:
        return self.since <= day and (self.until is None or day < self.until)


@dataclass(frozen=True, slots=True)
class RunningCost:
    """So much a month in [since, until) days; of a month it holds in part, that part of its days."""

    id: str
    kind: CostKind
    monthly: Decimal
    since: date
    until: date | None = None
    spread: Spread = "gpus"
    over: tuple[str, ...] = ()
    """Nodes that bear it; empty: all."""
    vat_percent: Decimal = ZERO

    def __post_init__(self) -> None:
        for name, value, allowed in (("kind", self.kind, COST_KINDS), ("spread", self.spread, SPREADS)):
            if value not in allowed:
                raise BadInput(f"must be one of {', '.join(allowed)}", field=name, value=value)
        if self.monthly < 0:
            hint = "a book holds costs alone; of what is refunded enter the cost that is left"
            raise BadInput("must not be negative", field="monthly", value=plain(self.monthly), hint=hint)
        if self.until is not None and self.until <= self.since:
            raise BadInput("must be after its begin", field="to", value=self.until.isoformat())
        if not 0 <= self.vat_percent < 100:
            raise BadInput("must be 0 to 100", field="vat_percent", value=str(self.vat_percent))

    def in_force(self, day: date) -> bool:
        return self.since <= day and (self.until is None or day < self.until)


@dataclass(frozen=True, slots=True)
class CostBook:
    """``name`` is the export's name, ``issuer`` whoever keeps the book. Nodes are named once over all assets."""

    name: str
    issuer: str
    currency: str
    assets: tuple[Asset, ...] = ()
    costs: tuple[RunningCost, ...] = ()
    decimals: int = CENTS

    def __post_init__(self) -> None:
        nodes = [node for asset in self.assets for node in asset.nodes]
        ids = [*(asset.id for asset in self.assets), *(cost.id for cost in self.costs)]
        for name, listed in (("nodes", nodes), ("id", ids)):
            twice = next((one for one in listed if listed.count(one) > 1), None)
            if twice is not None:
                raise BadInput("is given twice in this book", field=name, value=twice)
        for cost in self.costs:
            unknown = next((node for node in cost.over if node not in nodes), None)
            if unknown is not None:
                raise BadInput("is no node of this book", field="over", value=unknown)

    def asset_of(self, node: str) -> Asset:
        return next(asset for asset in self.assets if node in asset.nodes)


@dataclass(frozen=True, slots=True)
class BookLine:
    """One day's part of one entry, on one node ('': nobody's). ``hours``: machine hours, on depreciation lines alone, so that a
    machine's day counts once. ``quantity`` of ``unit``: kWh of power lines."""

    day: date
    item: str
    kind: str
    """depreciation, a ``CostKind``, power or tax."""
    node: str
    amount: Decimal
    hours: Decimal | None = None
    quantity: Decimal | None = None
    unit: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class BookMonth:
    """A month's lines of days before ``until``; ``notes``: what a person should know of it."""

    month: date
    lines: tuple[BookLine, ...]
    notes: tuple[str, ...] = field(default=())


def month_lines(book: CostBook, month: date, until: date) -> BookMonth:
    """Depreciation, running costs and taxes of the days of ``month`` before ``until`` (power: ``core.book_power``).

    Amounts are of the whole month, whatever ``until``: a month issued day by day grows and never changes what was issued.
    """
    days = days_of(month)
    lines = [line for asset in book.assets for line in _asset_lines(asset, month, days)]
    lines += [line for cost in book.costs for line in _cost_lines(book, cost, days)]
    notes = [note for asset in book.assets if (note := _written_off(asset, month))]
    return BookMonth(month, tuple(line for line in lines if line.day < until), tuple(notes))


def days_of(month: date) -> tuple[date, ...]:
    """The days of the calendar month that begins on ``month``."""
    return tuple(month + timedelta(days=n) for n in range((add_months(month, 1) - month).days))


def _asset_lines(asset: Asset, month: date, days: Sequence[date]) -> Iterable[BookLine]:
    served = [day for day in days if asset.in_service(day)]
    amount = asset.life.of_month(month) if served else ZERO
    shares = _even(amount, [(day, node) for day in served for node in asset.nodes])
    for (day, node), share in shares.items():
        yield BookLine(day, asset.id, "depreciation", node, share, hours=DAY_HOURS, description=f"depreciation of {asset.id}")
    if asset.vat and asset.since.replace(day=1) == month:
        yield BookLine(asset.since, asset.id, "tax", "", asset.vat, description=f"VAT on the price of {asset.id}")


def _cost_lines(book: CostBook, cost: RunningCost, days: Sequence[date]) -> Iterable[BookLine]:
    held = [day for day in days if cost.in_force(day)]
    if not held:
        return
    amount = _part_of_month(cost.monthly, len(held), len(days), book.decimals)
    for day, share in split(amount, dict.fromkeys(held, 1)).items():
        weights = _bearers(book, cost, day)
        for node, part in split(share, weights).items():
            yield BookLine(day, cost.id, cost.kind, node, part, description=f"{cost.kind}: {cost.id}")
    vat = _part_of_month(amount * cost.vat_percent / 100, 1, 1, book.decimals)
    if vat:
        yield BookLine(held[-1], cost.id, "tax", "", vat, description=f"VAT on {cost.kind}: {cost.id}")


def _bearers(book: CostBook, cost: RunningCost, day: date) -> Mapping[str, int]:
    """Who bears a day of it, by weight; nobody ('') by its rule, or where no node was in service."""
    nodes = {} if cost.spread == "none" else {
        node: asset.gpus if cost.spread == "gpus" else 1
        for asset in book.assets if asset.in_service(day)
        for node in asset.nodes if not cost.over or node in cost.over
    }  # fmt: skip
    return nodes or {"": 1}


def _even(amount: Decimal, keys: Sequence[tuple[date, str]]) -> Mapping[tuple[date, str], Decimal]:
    return split(amount, dict.fromkeys(keys, 1)) if keys else {}


def _part_of_month(amount: Decimal, days: int, of: int, decimals: int) -> Decimal:
    with localcontext(CONTEXT):
        return (amount * days / of).quantize(Decimal(1).scaleb(-decimals))


def _written_off(asset: Asset, month: date) -> str:
    """A machine that leaves before its life's end takes what is not yet depreciated with it: said, for it is no month's cost."""
    if asset.until is None or asset.until > add_months(month, 1) or asset.until.replace(day=1) < month:
        return ""
    last = (asset.until - timedelta(days=1)).replace(day=1)
    first = asset.life.start.replace(day=1)
    borne, at = ZERO, first
    while at <= last:
        borne += asset.life.of_month(at)
        at = add_months(at, 1)
    left = quantize(asset.life.whole - borne)
    return f"{asset.id} left service on {asset.until}: {left.normalize():f} of its price is in no month" if left > 0 else ""


def totals(lines: Iterable[BookLine]) -> dict[str, Decimal]:
    """Amounts by kind."""
    sums: dict[str, Decimal] = defaultdict(lambda: ZERO)
    with localcontext(CONTEXT):
        for line in lines:
            sums[line.kind] += line.amount
    return dict(sums)
